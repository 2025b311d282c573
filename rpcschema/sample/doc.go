// Package sample makes values from schemas: the required parameters of a method, all its
// parameters, and results with extreme values. Pages show the first; tests need all of them.
//
// The package knows only the schema, and always makes the same values.
package sample
