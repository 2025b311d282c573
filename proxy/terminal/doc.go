// Package terminal shows a target's figures (package figures) and the proxy's metrics to a person
// at a terminal, and to scripts. There are screens for the status of one server, for several
// storage servers, and for the busiest volumes.
//
// The package must not depend on how, from where, or as which user figures are read.
package terminal
