// Package importer contains a test that detects a change to package sum.
package importer
