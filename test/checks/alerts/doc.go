// Package alerts runs the unit tests of the Prometheus alerts with promtool. It depends only on the
// files in deploy/monitoring.
package alerts
