// Package metrics provides the proxy's Prometheus metrics: calls by user, method and outcome,
// SPDK's latency, refusals, reloads, and the state of proxy and target at the time of a scrape. The
// target's own figures are not here: package figures reads them, and package targetmetrics writes
// them.
//
// The values of labels are bounded: methods come from the schema, users from the configuration, and
// all others are constants of this package. A name that a client makes up is never a label.
//
// The package must not know how a call is decided or executed, nor who may read the metrics. No
// stage of the proxy is imported here, and none imports it.
package metrics
