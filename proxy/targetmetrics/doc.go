// Package targetmetrics writes a target's figures (package figures) in Prometheus' text format. It
// limits the number of series, because a target may have 10,000 volumes. Package metrics counts the
// proxy's own work.
//
// The package writes the text directly, because client_golang's registry would use about ten times
// as much CPU time for the same number of series.
//
// The package must not depend on the way figures are read, or on who may see them.
package targetmetrics
