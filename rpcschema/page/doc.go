// Package page renders the schema for people at a terminal: a page for each
// method, and a list of methods.
//
// It knows the schema and widths of lines; not where the pages are shown.
package page
