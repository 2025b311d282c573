package doctor

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// A Kind is a kind of finding. The names appear in metrics and in machine-readable output.
type Kind string

// The kinds of findings.
const (
	// Unreachable means that the target cannot be read, so its state is unknown.
	Unreachable Kind = "unreachable"
	// CredentialsRefused means that the target's proxy does not accept the credentials.
	CredentialsRefused Kind = "credentials-refused"
	// CertificateUntrusted means that no trusted authority issued the proxy's certificate for the
	// host in its URL.
	CertificateUntrusted Kind = "certificate-untrusted"
	// Denied means that the user's roles on the proxy do not allow a call that is needed to read
	// the target.
	Denied Kind = "denied"
	// StoreMissing means that an lvstore is not loaded, so its volumes are unknown.
	StoreMissing Kind = "lvstore-missing"
	// Nested is an lvstore or a RAID on a logical volume, possibly written by a host.
	Nested Kind = "nested"
	// Dropped is an lvstore with allocated clusters that do not belong to any listed volume.
	Dropped Kind = "dropped"
	// Loads is a target that loads lvstores and RAIDs that hosts have written to volumes.
	Loads Kind = "loads"
	// Orphan is a volume or snapshot that Kubernetes does not list.
	Orphan Kind = "orphan"
	// Move is a volume or snapshot that spdk-csi move created and that Kubernetes does not list.
	Move Kind = "move"
	// LeakedExport is an export of a volume that does not exist.
	LeakedExport Kind = "leaked-export"
	// LeakedGroup is an iSCSI initiator group that no target node uses.
	LeakedGroup Kind = "leaked-group"
	// LeakedKey is an authentication key that is no longer used.
	LeakedKey Kind = "leaked-key"
	// LeakedSnapshot is an unneeded internal snapshot.
	LeakedSnapshot Kind = "leaked-snapshot"
	// HalfMade is an object that an interrupted operation left behind.
	HalfMade Kind = "half-made"
	// Duplicate means that there are two objects where one is expected.
	Duplicate Kind = "duplicate"
	// Broken is a volume that cannot be used.
	Broken Kind = "broken"
	// OpenExport is an export that admits every host.
	OpenExport Kind = "open-export"
	// Missing is a volume that Kubernetes lists but that does not exist.
	Missing Kind = "missing"
	// TooSmall is a volume that is smaller than Kubernetes has recorded.
	TooSmall Kind = "too-small"
	// WrongHost is a volume that is exported to a node although Kubernetes does not attach it
	// there.
	WrongHost Kind = "wrong-host"
	// NotExported is a volume that is not exported to a node although Kubernetes attaches it there.
	NotExported Kind = "not-exported"
	// Fenced is a node that is cut off from all volumes until an administrator lifts the fence.
	Fenced Kind = "fenced"
)

// Kinds lists all kinds.
var Kinds = []Kind{Unreachable, CredentialsRefused, CertificateUntrusted, Denied, StoreMissing, Nested, Dropped, Loads, Orphan, Move, LeakedExport, LeakedGroup, LeakedKey, LeakedSnapshot, HalfMade, Duplicate, Broken, OpenExport, Missing, TooSmall, WrongHost, NotExported, Fenced}

// Conclusive reports whether a single reading is enough to prove findings of this kind, because
// calls in flight cannot cause them.
func (k Kind) Conclusive() bool {
	return k == CredentialsRefused || k == CertificateUntrusted || k == Denied
}

// A Finding is one leftover or difference.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"`
	// Object is the object of the finding, such as "subsystem NQN".
	Object string `json:"object"`
	// Volume is the handle, as Kubernetes stores it, of the volume that the object belongs to;
	// empty if there is none.
	Volume  string `json:"volume,omitzero"`
	Problem string `json:"problem"`
	// Repair describes what Apply does; empty if the finding is only reported.
	Repair string `json:"mend,omitzero"`
	// Command is a command or action for an administrator.
	Command string `json:"command"`

	// subjects contains the ids and names that a call locks while it works on the object.
	subjects []string
	repair   func(context.Context) error
}

// Key identifies the finding across readings.
func (f Finding) Key() string { return string(f.Kind) + " " + f.Target + " " + f.Object }

// Confirmed returns the findings in second that are also in first.
func Confirmed(first, second []Finding) []Finding {
	seen := map[string]bool{}
	for _, f := range first {
		seen[f.Key()] = true
	}
	return slices.DeleteFunc(slices.Clone(second), func(f Finding) bool { return !seen[f.Key()] })
}

// NotBusy returns all findings except findings about objects that a call has locked. held contains
// the locks of the calls that were in flight before or after the reading, as [request.Locks] lists
// them.
func NotBusy(all []Finding, held []string) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return slices.ContainsFunc(held, func(lock string) bool {
			return slices.Contains(f.subjects, lock) || slices.Contains(f.subjects, anyCall) || slices.Contains(f.subjects, anyName) && strings.HasPrefix(lock, namePrefix)
		})
	})
}

// namePrefix begins the locks of calls that create a named object. anyName is the subject of an
// object whose name does not reveal which of these calls created it. anyCall is the subject of
// objects that any call may need.
const (
	anyCall    = "*"
	namePrefix = "name "
	// groupPrefix is the prefix of the locks of calls for group snapshots.
	groupPrefix = "group snapshot "
	anyName     = "name *"
)

// Apply makes the repair that the field Repair describes. If the object is now in use, Apply fails
// and changes nothing.
func (f Finding) Apply(ctx context.Context) error { return f.repair(ctx) }

func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Object, b.Object))
	})
	return all
}
