// Package controller is CSI's controller service: it makes, exports, snapshots and deletes volumes on SPDK targets.
//
// A call is parsed, claims what it works on (package request), opens the target by the credentials of the call, and hands
// the work to packages placement and volume. It keeps no state but the calls in flight and the connections to the proxies.
//
// It may not know package node, gRPC codes, or SPDK's JSON.
package controller
