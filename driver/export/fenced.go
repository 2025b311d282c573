package export

import (
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A FencedHost is a host that [Service.Fence] marked.
type FencedHost struct {
	id string
	// Label is the host's name for people, limited to the mark's 40 printable characters; empty
	// over iSCSI.
	Label string
}

// Is reports whether h is the marked host.
func (f FencedHost) Is(h Host) bool { return f.id != "" && f.id == h.id() }

// ID returns the part of the host's NQN or initiator name that is unique to the host.
func (f FencedHost) ID() string { return f.id }

func fencedIn(subs []spdkrpc.NVMfSubsystem) (all []FencedHost) {
	for _, sub := range subs {
		if id, ok := strings.CutPrefix(sub.NQN, fenceNQN); ok {
			f := FencedHost{id: id}
			if sub.ModelNumber != nil {
				f.Label = *sub.ModelNumber
			}
			all = append(all, f)
		}
	}
	return all
}

func fencedBy(groups []spdkrpc.ISCSIInitiatorGroup) (all []FencedHost) {
	for _, g := range groups {
		if len(g.Initiators) == 0 {
			continue
		}
		if id, ok := strings.CutPrefix(g.Initiators[0], fenceIQN); ok {
			all = append(all, FencedHost{id: id})
		}
	}
	return all
}
