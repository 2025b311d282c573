// Package metrics provides the proxy's Prometheus metrics: calls by user, method and outcome;
// SPDK's latency; refusals; reloads; and the state of the proxy and the target at the time of a
// scrape. It does not include the target's own figures, which package figures reads and package
// targetmetrics writes.
//
// The number of label values is limited: methods come from the schema, users from the
// configuration, and all other values are constants in this package. Names invented by clients
// never become labels.
//
// The package must not depend on how calls are authorized or executed, or on who may read the
// metrics. It imports no stage of the proxy, and no stage imports it.
package metrics
