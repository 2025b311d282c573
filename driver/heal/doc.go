// Package heal runs the mirrors of this node's replicated volumes (docs/design/replication.md): it
// connects to the replicas, and starts and stops the mirrors. If a replica's server does not
// respond, package heal drops the replica from the mirror, and rebuilds it when the server responds
// again.
//
// Packages replica and mirror determine which changes are permitted; package heal determines only
// when to make them. If a step fails, the package retries it later, and writes wait until then.
//
// Package heal must not depend on CSI, gRPC, the controller, file systems or encryption.
package heal
