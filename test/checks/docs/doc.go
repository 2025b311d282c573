// Package docs tests the repository's Markdown files: the targets of links, the named paths and the
// commands exist. It knows Markdown and the Makefile. Some pages have tests of their own, which
// compare messages, features, figures and settings with the code, the measurements and the
// manifests.
package docs
