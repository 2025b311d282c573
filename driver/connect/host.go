package connect

import "github.com/spdkgate/spdkgate/driver/hostname"

// A Host is the names under which a node connects to targets.
type Host = hostname.Host

// HostOf derives the host of a node from its CSI node id.
func HostOf(nodeID string) Host { return hostname.Of(nodeID) }
