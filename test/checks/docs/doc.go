// Package docs tests the repository's Markdown files: the link targets, paths and commands that
// they mention must exist. TestForbiddenWordsAreNotUsed also checks the wording of comments, errors
// and test names. Further tests compare the messages, features, figures and settings on some pages
// with the code, the measurements and the manifests.
package docs
