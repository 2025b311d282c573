package quiesce

import (
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ANA states that can be set and restored.
const (
	optimized    = "optimized"
	nonOptimized = "non_optimized"
	inaccessible = "inaccessible"
)

// An entry of the journal is all that is needed to thaw the volumes of one operation.
type entry struct {
	Made    time.Time `json:"made"`
	Process string    `json:"process"` // of the target; in another process, nothing is frozen
	At      Place     `json:"at"`
	Paths   []paths   `json:"paths"`
	// Making are the aliases of snapshots that SPDK may still be taking.
	Making []string `json:"making"`
	// Deleting are the aliases of snapshots that SPDK may still be deleting.
	Deleting []string `json:"deleting,omitempty"`
}

// paths are the paths to the namespaces of one ANA group of a subsystem.
type paths struct {
	NQN        string   `json:"nqn"`
	Group      uint32   `json:"group"`
	Namespaces []uint32 `json:"namespaces"` // the frozen ones
	Listeners  []path   `json:"listeners"`
	bdevs      []string // of the namespaces
}

// A path is a listener and its ANA state before the freeze.
type path struct {
	Address spdkrpc.NVMfTransportID `json:"address"`
	State   string                  `json:"state"`
}

// overlaps reports whether two entries are about the same subsystem.
func (e entry) overlaps(o entry) bool {
	return e.Process == o.Process && slices.ContainsFunc(e.Paths, func(a paths) bool {
		return slices.ContainsFunc(o.Paths, func(b paths) bool { return a.NQN == b.NQN })
	})
}

// stateOf is the ANA state of a group on a listener; "" if the listener reports none.
func stateOf(l spdkrpc.NVMfListener, group uint32) string {
	for _, s := range l.ANAStates {
		if s.ANAGroup == group {
			return string(s.ANAState)
		}
	}
	return ""
}

// sameAddress reports whether two addresses that the target reported are the same.
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
