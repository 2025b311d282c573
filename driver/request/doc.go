// Package request provides the types and functions that both CSI services, controller and node,
// need to handle a request. It defines ids and capabilities, the keys of the contexts that the
// controller sends to the node, and kinds of failure. Its locks allow one call at a time on each
// volume ([Locks]).
//
// Package request must not depend on the purpose of a request, and therefore not on targets,
// devices or gRPC codes.
package request
