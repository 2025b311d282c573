package connect

import "github.com/google/uuid"

// hostNamespace is the UUID under which node ids are hashed. It is part of the contract between
// controller and node, and between releases: changing it locks every node out of its volumes.
var hostNamespace = uuid.MustParse("6a0c2f1e-7d55-5b0e-9c43-0c1b8d2f7a91")

// Host is how one node names itself to targets. NVMe requires host NQN and host identifier to agree,
// and to differ between nodes: two nodes that share either are one host to the target.
type Host struct {
	UUID string // host identifier (hostid), lower case
	NQN  string // NVMe host NQN
	IQN  string // iSCSI initiator name
}

// HostOf derives the identity of the node that CSI calls nodeID. The controller allows this host
// on a subsystem, the node connects as it: both sides compute it, nothing is stored. The id is
// taken byte for byte.
func HostOf(nodeID string) Host {
	id := uuid.NewSHA1(hostNamespace, []byte(nodeID)).String()
	return Host{
		UUID: id,
		NQN:  "nqn.2014-08.org.nvmexpress:uuid:" + id,
		IQN:  "iqn.2026-11.io.spdkgate:host:" + id,
	}
}

// Multipath is the identity under which a node connects whose kernel has native NVMe multipath,
// to subsystems that report ANA: the target can then make it hold its I/O back. Both identities
// are admitted; the target tells which one is connected. It differs from the other in all names,
// as the kernel takes a host NQN with one host identifier only. Its UUID is of version 8, by which
// package export recognises it.
func (h Host) Multipath() Host {
	id := uuid.NewSHA1(hostNamespace, []byte("multipath:"+h.UUID))
	id[6] = id[6]&0x0f | 0x80
	return Host{UUID: id.String(), NQN: "nqn.2014-08.org.nvmexpress:uuid:" + id.String(), IQN: h.IQN}
}
