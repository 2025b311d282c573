// Package sample makes values from schemas: the required parameters of a method, all its
// parameters, and results with extreme values. Pages show the first; tests need all of them.
//
// It knows the schema only, and makes the same values every time.
package sample
