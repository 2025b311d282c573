// Package alerts runs the unit tests of the Prometheus alerts with promtool. It knows the files in
// deploy/monitoring and nothing about the programs.
package alerts
