// Package hostname derives the names that a node has on targets. The controller, the nodes and the
// kubectl plugin derive these names from the node's id, so the names do not need to be stored or
// sent.
//
// Package hostname must not depend on how nodes connect, or how targets admit them.
package hostname

import (
	"strings"

	"github.com/google/uuid"
)

// namespace is the UUID namespace for hashing node ids. Controllers and nodes of all releases must
// use the same namespace. Changing it would lock every node out of its volumes.
var namespace = uuid.MustParse("6a0c2f1e-7d55-5b0e-9c43-0c1b8d2f7a91")

// A Host contains the names that a node presents to targets. NVMe requires that each host NQN has
// one host identifier, and that both differ between nodes. A target would treat two nodes with the
// same NQN or identifier as one host.
type Host struct {
	UUID string // host identifier (hostid), lower case
	NQN  string // NVMe host NQN
	IQN  string // iSCSI initiator name
}

// Of derives the host of a node from its CSI node id, byte for byte. The controller admits this
// host to a subsystem, and the node connects as this host. Both compute the host from the node's
// id, so it is never stored.
func Of(nodeID string) Host {
	id, isMove := copyIn(nodeID)
	if !isMove {
		id = uuid.NewSHA1(namespace, []byte(nodeID))
	}
	return Host{UUID: id.String(), NQN: nqnPrefix + id.String(), IQN: iqnPrefix + id.String()}
}

const (
	nqnPrefix = "nqn.2014-08.org.nvmexpress:uuid:"
	iqnPrefix = "iqn.2026-11.io.spdkgate:host:"
)

// Multipath returns the second host of a node. A node with native NVMe multipath uses this host to
// connect to subsystems that report ANA, and can then be made to hold back its I/O. Targets admit
// both hosts and can distinguish their connections. UUID and NQN both differ from those of h,
// because the kernel accepts only one host identifier for a host NQN. IsMultipath recognizes
// the second NQN by the version of its UUID.
func (h Host) Multipath() Host {
	id := withVersion(uuid.NewSHA1(namespace, []byte("multipath:"+h.UUID)), multipathVersion)
	if of, err := uuid.Parse(h.UUID); err == nil && of.Version() == moveVersion {
		id = withVersion(of, moveMultipathVersion)
	}
	return Host{UUID: id.String(), NQN: nqnPrefix + id.String(), IQN: h.IQN}
}

// IsMultipath reports whether a host NQN is that of a second host; see [Host.Multipath].
func IsMultipath(hostNQN string) bool {
	text, ok := strings.CutPrefix(hostNQN, nqnPrefix)
	id, err := uuid.Parse(text)
	return ok && err == nil && (id.Version() == multipathVersion || id.Version() == moveMultipathVersion)
}

// MoveNode returns the id of the node that spdk-csi move publishes a volume and its copy to, given
// their UUIDs. CopyOf extracts the UUID of the copy from this node's names on targets.
func MoveNode(original, copied string) string { return movePrefix + original + "-" + copied }

// SPDK gives version 4 UUIDs to volumes. Both hosts of a move have the copy's UUID, but with the
// versions 15 and 14, which no other UUID has. Each host must contain the UUID of the copy, because
// an interrupted call may leave only one of the two hosts admitted.
const (
	movePrefix           = "move-"
	volumeVersion        = 4
	multipathVersion     = 8
	moveMultipathVersion = 14
	moveVersion          = 15
)

func withVersion(id uuid.UUID, version byte) uuid.UUID {
	id[6] = id[6]&0x0f | version<<4
	return id
}

// copyIn returns the UUID of the host of a move, if nodeID is the node of a move.
func copyIn(nodeID string) (id uuid.UUID, ok bool) {
	const length = len("8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d")
	rest, ok := strings.CutPrefix(nodeID, movePrefix)
	if !ok || len(rest) != 2*length+1 {
		return id, false
	}
	original, errOriginal := uuid.Parse(rest[:length])
	id, err := uuid.Parse(rest[length+1:])
	if errOriginal != nil || err != nil || id.Version() != volumeVersion || MoveNode(original.String(), id.String()) != nodeID {
		return id, false
	}
	return withVersion(id, moveVersion), true
}

// CopyOf returns the UUID of the copy if name is an NQN or the IQN of the node of a move.
func CopyOf(name string) (copied string, ok bool) {
	text, isNQN := strings.CutPrefix(name, nqnPrefix)
	if !isNQN {
		if text, ok = strings.CutPrefix(name, iqnPrefix); !ok {
			return "", false
		}
	}
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text || id.Version() != moveVersion && id.Version() != moveMultipathVersion {
		return "", false
	}
	return withVersion(id, volumeVersion).String(), true
}
