// Package alerts runs the unit tests of the alerts for Prometheus with promtool. It knows the files
// in deploy/monitoring and nothing of the programs.
package alerts
