// Package terminal shows a target's figures (package figures) and the proxy's metrics to a person
// at a terminal, and to scripts. There is a screen for the status of one server, one for several
// storage servers, and one for the busiest volumes.
//
// The package must not depend on how figures are read, from where, or as which user.
package terminal
