// Package request holds what both CSI services, controller and node, need to handle a request: its
// ids and capabilities, the keys of the contexts that the controller sends to the node, locks that
// allow one call at a time on each volume ([Locks]), and kinds of failure.
//
// It may not know what a request is for: no targets, no devices, no gRPC codes.
package request
