// Package heal runs the mirrors of this node's replicated volumes (docs/design/replication.md): it
// connects to their replicas, starts and stops their mirrors, gives up a replica whose server does
// not respond, and rebuilds it when it is back. No class can request replicated volumes yet.
//
// What is permitted is decided by packages replica and mirror. This package decides only when to
// ask for it. If anything fails, it tries again later, and writes wait.
//
// The package must not know CSI, gRPC, the controller, file systems or encryption.
package heal
