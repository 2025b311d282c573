// Package request is what both CSI services, controller and node, make of a request: the ids and capabilities in it, the
// keys of the contexts that travel from one service to the other, one call at a time on each volume ([Locks]), and the
// kinds of their failures.
//
// It may not know what a request is for: no targets, no devices, no gRPC codes.
package request
