// Package sample makes values from schemas: the least that a method takes, all
// that it takes, and results with extreme values. Pages show the first; tests
// need them all.
//
// It knows the schema only, and makes the same values every time.
package sample
