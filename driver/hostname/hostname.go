// Package hostname derives the names that a node has on targets. The controller, the nodes and the
// kubectl plugin derive these names from the node's id, so the names do not need to be stored or
// sent.
//
// Package hostname must not depend on how nodes connect, or how targets admit them.
package hostname

import "github.com/google/uuid"

// namespace is the UUID namespace in which node ids are hashed. Controllers and nodes of all
// releases must use the same namespace. Changing it would lock every node out of its volumes.
var namespace = uuid.MustParse("6a0c2f1e-7d55-5b0e-9c43-0c1b8d2f7a91")

// A Host holds the names under which a node connects to targets. NVMe requires that each host NQN
// has one host identifier, and that both differ between nodes. A target would treat two nodes that
// share either of them as one host.
type Host struct {
	UUID string // host identifier (hostid), lower case
	NQN  string // NVMe host NQN
	IQN  string // iSCSI initiator name
}

// Of derives the host of a node from its CSI node id, byte for byte. The controller admits this
// host to a subsystem, and the node connects as this host. Controller and node both compute the
// host from the node's id; the host is not stored.
func Of(nodeID string) Host {
	id := uuid.NewSHA1(namespace, []byte(nodeID)).String()
	return Host{
		UUID: id,
		NQN:  "nqn.2014-08.org.nvmexpress:uuid:" + id,
		IQN:  "iqn.2026-11.io.spdkgate:host:" + id,
	}
}

// Multipath returns the second host of a node. A node with native NVMe multipath uses this host to
// connect to subsystems that report ANA, and can then be made to hold back its I/O. Targets admit
// both hosts, and can distinguish their connections. Both UUID and NQN differ from h's, because the
// kernel accepts only one host identifier for a host NQN. The UUID has version 8, by which package
// export recognizes it.
func (h Host) Multipath() Host {
	id := uuid.NewSHA1(namespace, []byte("multipath:"+h.UUID))
	id[6] = id[6]&0x0f | 0x80
	return Host{UUID: id.String(), NQN: "nqn.2014-08.org.nvmexpress:uuid:" + id.String(), IQN: h.IQN}
}
