// Package metrics counts what the proxy does, in Prometheus' terms: calls by
// user, method and outcome, how long SPDK took, refusals, reloads, and what state
// proxy and target are in when somebody asks.
//
// Labels are bounded: methods are the schema's, users the configuration's, all
// else comes from the closed sets in this package. What a client can make up is
// never a label.
//
// It may not know how a call is decided or executed, nor who may read the
// metrics; no stage of the proxy is imported here, and none imports it.
package metrics
