package export

import (
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A FencedHost is a host that [Service.Fence] marked.
type FencedHost struct {
	id string
	// Label is a readable name of the host, limited to the 40 printable characters of a mark; empty
	// over iSCSI.
	Label string
	// Since is the time when the mark was set, in UTC and whole seconds. It is zero over iSCSI, and
	// for marks set by earlier releases.
	Since time.Time
}

// markTime is the format of the time in the serial number of a mark. NVMe limits serial numbers to
// 20 characters.
const markTime = "20060102T150405Z"

// Is reports whether the mark belongs to h.
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
			if sub.SerialNumber != nil {
				f.Since, _ = time.Parse(markTime, *sub.SerialNumber) // fails for the serial number that SPDK assigns by default
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
