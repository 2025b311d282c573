package quiesce

import (
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// These are the ANA states that the package can set and restore.
const (
	optimized    = "optimized"
	nonOptimized = "non_optimized"
	inaccessible = "inaccessible"
)

// An entry is the journal's record of an operation. It contains everything needed to thaw the
// operation's volumes.
type entry struct {
	Made time.Time `json:"made"`
	// the target's process; no other process has frozen paths
	Process string  `json:"process"`
	At      Place   `json:"at"`
	Paths   []paths `json:"paths"`
	// Making lists the aliases of snapshots that SPDK may still be taking.
	Making []string `json:"making"`
	// Deleting lists the aliases of snapshots that SPDK may still be deleting.
	Deleting []string `json:"deleting,omitempty"`
}

// paths contains the paths to the namespaces in one ANA group of a subsystem.
type paths struct {
	NQN        string   `json:"nqn"`
	Group      uint32   `json:"group"`
	Namespaces []uint32 `json:"namespaces"` // NSIDs of the namespaces to freeze
	Listeners  []path   `json:"listeners"`
	bdevs      []string // bdevs of the namespaces
}

// A path is a listener and its ANA state before the freeze.
type path struct {
	Address spdkrpc.NVMfTransportID `json:"address"`
	State   string                  `json:"state"`
}

// overlaps reports whether two entries concern the same subsystem.
func (e entry) overlaps(o entry) bool {
	return e.Process == o.Process && slices.ContainsFunc(e.Paths, func(a paths) bool {
		return slices.ContainsFunc(o.Paths, func(b paths) bool { return a.NQN == b.NQN })
	})
}

// stateOf returns the ANA state of a group on a listener, or "" if the listener reports none.
func stateOf(l spdkrpc.NVMfListener, group uint32) string {
	for _, s := range l.ANAStates {
		if s.ANAGroup == group {
			return string(s.ANAState)
		}
	}
	return ""
}

// sameAddress reports whether two addresses, as the target reports them, are the same.
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
