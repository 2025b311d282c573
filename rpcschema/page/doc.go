// Package page renders the schema as text for a terminal and as Markdown: a page for each method,
// and a list of methods.
//
// It knows the schema and the line width, but not where the pages are shown.
package page
