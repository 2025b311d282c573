// Package docs tests the repository's Markdown files: link targets, named paths and commands must
// exist. It knows Markdown and the Makefile. TestWords also checks the wording of comments, errors
// and test names. Some pages have their own tests, which compare messages, features, figures and
// settings with the code, the measurements and the manifests.
package docs
