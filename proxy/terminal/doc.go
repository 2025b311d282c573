// Package terminal formats a target's figures (package figures) and the proxy's metrics for people
// at a terminal, and for scripts. Its screens show the status of one server, several storage
// servers, and the busiest volumes.
//
// The package must not depend on how, where, or as which user figures are read.
package terminal
