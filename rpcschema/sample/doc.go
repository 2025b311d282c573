// Package sample creates values from schemas: the required parameters of a method, all its
// parameters, and results with extreme values. Manual pages show the required parameters. Tests use
// all of these values.
//
// The package depends only on the schema, and is deterministic.
package sample
