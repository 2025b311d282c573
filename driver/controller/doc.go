// Package controller is CSI's controller service: it creates, exports, snapshots and deletes
// volumes on SPDK targets.
//
// The service parses a call, locks its objects (package request), opens the target with the
// credentials of the call, and does the work by packages placement and volume. Its only state is
// the calls in flight and the connections to the proxies.
//
// It may not know package node, gRPC codes, or SPDK's JSON.
package controller
