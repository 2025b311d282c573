// Package importer is a package whose test detects a change of package sum.
package importer
