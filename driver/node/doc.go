// Package node implements the CSI node service: it connects, formats, mounts and publishes volumes
// on its node.
//
// The service parses a call, locks its volume (package request), and does the work through packages
// connect and mount. A record in the staging directory describes the connection of a staged volume
// (record.go). Files in the node's state directory record which volumes have been used on this node
// (used.go).
//
// Package node must not depend on package controller, targets or SPDK's RPCs: nodes never call a
// proxy.
package node
