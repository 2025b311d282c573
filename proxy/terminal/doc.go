// Package terminal shows a target's figures (package figures) and the proxy's metrics to a person
// at a terminal, and to scripts: one screen of status, one of several storage servers, and the
// busiest volumes.
//
// The package must not know how figures are read, from where, or as which user.
package terminal
