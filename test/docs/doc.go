// Package docs tests what people read: that every link of the repository's Markdown leads
// somewhere, and that the paths and commands it names exist. It knows Markdown and the Makefile,
// and nothing of what the documents say.
package docs
