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
	// Unreachable: the target cannot be read, so nothing is known about it.
	Unreachable Kind = "unreachable"
	// CredentialsRefused: the target's proxy does not accept the credentials.
	CredentialsRefused Kind = "credentials-refused"
	// CertificateUntrusted: no trusted authority issued the proxy's certificate for the host in its
	// URL.
	CertificateUntrusted Kind = "certificate-untrusted"
	// Denied: the user's roles on the proxy do not allow a call needed to read the target.
	Denied Kind = "denied"
	// StoreMissing: an lvstore is not loaded, so it is unknown which volumes exist.
	StoreMissing Kind = "lvstore-missing"
	// Nested: an lvstore or a RAID on a logical volume, possibly written by a host.
	Nested Kind = "nested"
	// Dropped: an lvstore with allocated clusters that belong to no listed volume.
	Dropped Kind = "dropped"
	// Loads: a target that loads what hosts write into volumes.
	Loads Kind = "loads"
	// Orphan: a volume or snapshot that Kubernetes does not name.
	Orphan Kind = "orphan"
	// LeakedExport: an export of a volume that does not exist.
	LeakedExport Kind = "leaked-export"
	// LeakedGroup: an iSCSI initiator group that nothing refers to.
	LeakedGroup Kind = "leaked-group"
	// LeakedKey: a key with which hosts authenticated, but that none uses now.
	LeakedKey Kind = "leaked-key"
	// LeakedSnapshot: an internal snapshot that nothing needs.
	LeakedSnapshot Kind = "leaked-snapshot"
	// HalfMade: an object that an interrupted operation left.
	HalfMade Kind = "half-made"
	// Duplicate: two objects where one is expected.
	Duplicate Kind = "duplicate"
	// Broken: a volume that cannot be used.
	Broken Kind = "broken"
	// OpenExport: an export to every host.
	OpenExport Kind = "open-export"
	// Missing: a volume that Kubernetes names but that does not exist.
	Missing Kind = "missing"
	// TooSmall: a volume that is smaller than Kubernetes has recorded.
	TooSmall Kind = "too-small"
	// WrongHost: a volume exported to a node that Kubernetes does not attach it to.
	WrongHost Kind = "wrong-host"
	// NotExported: a volume not exported to a node that Kubernetes attaches it to.
	NotExported Kind = "not-exported"
	// Fenced: a node cut off from all volumes until a person lifts the fence.
	Fenced Kind = "fenced"
)

// Kinds lists all kinds.
var Kinds = []Kind{Unreachable, CredentialsRefused, CertificateUntrusted, Denied, StoreMissing, Nested, Dropped, Loads, Orphan, LeakedExport, LeakedGroup, LeakedKey, LeakedSnapshot, HalfMade, Duplicate, Broken, OpenExport, Missing, TooSmall, WrongHost, NotExported, Fenced}

// Conclusive reports whether one reading proves findings of the kind, because no call in flight
// causes them.
func (k Kind) Conclusive() bool {
	return k == CredentialsRefused || k == CertificateUntrusted || k == Denied
}

// A Finding is one leftover or difference.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"`
	// Object is what the finding is about, such as "subsystem NQN".
	Object string `json:"object"`
	// Volume is the volume handle, as Kubernetes stores it, of the volume that the object belongs
	// to; empty if there is none.
	Volume  string `json:"volume,omitzero"`
	Problem string `json:"problem"`
	// Repair is what Apply does; empty if the finding is only reported.
	Repair string `json:"mend,omitzero"`
	// Command is what a person can do.
	Command string `json:"command"`

	// subjects holds the ids and names that a call locks while it works on the object.
	subjects []string
	repair   func(context.Context) error
}

// Key identifies the same finding in several readings.
func (f Finding) Key() string { return string(f.Kind) + " " + f.Target + " " + f.Object }

// Confirmed returns the findings that both readings contain, as they are in the second.
func Confirmed(first, second []Finding) []Finding {
	seen := map[string]bool{}
	for _, f := range first {
		seen[f.Key()] = true
	}
	return slices.DeleteFunc(slices.Clone(second), func(f Finding) bool { return !seen[f.Key()] })
}

// NotBusy returns the findings except those about objects that a call has locked. held contains the
// locks of the calls that were in flight before or after the reading, as [request.Locks] lists
// them.
func NotBusy(all []Finding, held []string) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return slices.ContainsFunc(held, func(lock string) bool {
			return slices.Contains(f.subjects, lock) || slices.Contains(f.subjects, anyCall) || slices.Contains(f.subjects, anyName) && strings.HasPrefix(lock, namePrefix)
		})
	})
}

// Locks of calls that create an object with a name begin with namePrefix. anyName is the subject of
// objects whose name does not show which of these calls created them. anyCall is the subject of
// objects that any call may need.
const (
	anyCall    = "*"
	namePrefix = "name "
	// groupPrefix begins the locks of calls for group snapshots.
	groupPrefix = "group snapshot "
	anyName     = "name *"
)

// Apply repairs what was found, as Repair describes. If the object is in use now, it fails and does
// nothing.
func (f Finding) Apply(ctx context.Context) error { return f.repair(ctx) }

func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(slices.Index(Kinds, a.Kind), slices.Index(Kinds, b.Kind)), cmp.Compare(a.Object, b.Object))
	})
	return all
}
