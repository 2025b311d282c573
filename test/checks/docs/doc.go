// Package docs tests the repository's Markdown files: the targets of links, the named paths and the
// commands exist. It knows Markdown and the Makefile, but not the contents of the documents.
package docs
