// Package controller implements CSI's controller service: it creates, exports, snapshots and
// deletes volumes on SPDK targets.
//
// The service parses a call, locks its objects (package request), opens the target with the call's
// credentials, and does the work through packages placement and volume. Its only state consists of
// the calls in flight and the connections to the proxies.
//
// Package controller must not depend on package node, gRPC codes, or SPDK's JSON.
package controller
