// Package importer has a test that detects a change to package sum.
package importer
