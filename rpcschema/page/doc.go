// Package page renders the schema as text for a terminal and as Markdown: a page for each method,
// and a list of methods.
//
// The package must not depend on where the pages are shown.
package page
