// Package node is CSI's node service: it connects, formats, mounts and publishes volumes on the node it runs on.
//
// A call is parsed, claims its volume (package request), and is done by packages connect and mount. What a staged volume is
// connected to stands in a record in its staging directory (record.go), which volumes were used here in files of the
// node's state directory (used.go).
//
// It may not know package controller, targets or SPDK's RPC: nodes never speak to a proxy.
package node
