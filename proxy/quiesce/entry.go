package quiesce

import (
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ANA states. Others can neither be set nor be put back.
const (
	optimized    = "optimized"
	nonOptimized = "non_optimized"
	inaccessible = "inaccessible"
)

// An entry of the journal says all that it takes to thaw.
type entry struct {
	Made    time.Time `json:"made"`
	Process string    `json:"process"` // of the target: another one knows nothing of what was frozen
	At      Place     `json:"at"`
	Paths   []paths   `json:"paths"`
	// Making are the aliases of snapshots that may be being made.
	Making []string `json:"making"`
	// Deleting are the aliases of snapshots that may be being deleted.
	Deleting []string `json:"deleting,omitempty"`
}

// paths are those to the namespaces of one ANA group of a subsystem.
type paths struct {
	NQN        string   `json:"nqn"`
	Group      uint32   `json:"group"`
	Namespaces []uint32 `json:"namespaces"` // that are frozen
	Listeners  []path   `json:"listeners"`
	bdevs      []string // of the namespaces
}

// A path is a listener, with the state that it had before.
type path struct {
	Address spdkrpc.NVMfTransportID `json:"address"`
	State   string                  `json:"state"`
}

// overlaps says whether two entries have a path in common.
func (e entry) overlaps(o entry) bool {
	return e.Process == o.Process && slices.ContainsFunc(e.Paths, func(a paths) bool {
		return slices.ContainsFunc(o.Paths, func(b paths) bool { return a.NQN == b.NQN })
	})
}

// stateOf is the state that a group has on a listener; "" if it tells none.
func stateOf(l spdkrpc.NVMfListener, group uint32) string {
	for _, s := range l.ANAStates {
		if s.ANAGroup == group {
			return string(s.ANAState)
		}
	}
	return ""
}

// sameAddress compares what the target tells of addresses.
func sameAddress(a, b spdkrpc.NVMfTransportID) bool {
	return a.Trtype == b.Trtype && a.Adrfam == b.Adrfam && a.Traddr == b.Traddr && a.Trsvcid == b.Trsvcid
}

func listenAddress(a spdkrpc.NVMfTransportID) spdkrpc.NVMfListenAddress {
	l := spdkrpc.NVMfListenAddress{Trtype: a.Trtype, Traddr: a.Traddr}
	if a.Adrfam != "" && a.Adrfam != spdkrpc.NVMfTransportIDAdrfamUnknown {
		l.Adrfam = new(string(a.Adrfam))
	}
	if a.Trsvcid != "" {
		l.Trsvcid = &a.Trsvcid
	}
	return l
}
