// Package targetmetrics writes a target's figures (package figures) in Prometheus' text format. It
// bounds the number of series: a target may have 10,000 volumes. The proxy's own work is counted in
// package metrics.
//
// The text is written directly, not through client_golang's registry, which takes about ten times
// as much CPU time for the same number of series.
//
// The package must not depend on how figures are read, or who may see them.
package targetmetrics
