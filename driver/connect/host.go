package connect

import "github.com/spdkgate/spdkgate/driver/hostname"

// A Host contains the names that a node presents to targets when it connects.
type Host = hostname.Host

// HostOf derives a node's host from its CSI node id.
func HostOf(nodeID string) Host { return hostname.Of(nodeID) }
