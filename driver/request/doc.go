// Package request provides the types and functions that both CSI services, controller and node,
// need to handle a request. It defines ids and capabilities, the keys of the contexts that the
// controller sends to the node, kinds of failure, and locks that allow one call at a time on each
// volume ([Locks]).
//
// Package request must not depend on the purpose of a request, that is, on targets, devices or gRPC
// codes.
package request
