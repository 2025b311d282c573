// Package heal runs the mirrors of this node's replicated volumes (docs/design/replication.md): it
// connects to their replicas, and starts and stops their mirrors. If a replica's server does not
// respond, package heal drops the replica from the mirror, and rebuilds it when the server responds
// again. No class can request replicated volumes yet.
//
// Packages replica and mirror determine what is permitted. Package heal only determines when to
// request a permitted change. If anything fails, the package tries again later, and writes wait
// until then.
//
// Package heal must not depend on CSI, gRPC, the controller, file systems or encryption.
package heal
