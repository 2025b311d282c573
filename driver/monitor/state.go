package monitor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// A Volume describes a volume that is staged on this node.
type Volume struct {
	ID           string
	Target, UUID string // name of the target, and UUID of the volume on it
	Export       connect.Export
	Path         string   // staging mount of the file system; empty for a raw block volume
	Targets      []string // target paths of its publications, some of which may have ended
	// OnAnother reports whether the volume's mapping belongs to a different device, which has been
	// removed. It is nil for a volume without a mapping.
	OnAnother func(device string) (bool, error)
	// Err is the reason why the other fields are unknown, or nil.
	Err error
}

// A Source reports which volumes are staged on this node. It is safe for concurrent use.
type Source interface {
	// Staged lists the volumes that are fully staged.
	Staged() ([]Volume, error)
	// Busy reports whether a call is working on a volume.
	Busy(volumeID string) bool
	// Hold locks a volume, so that CSI calls for it fail until release is called, and returns the
	// volume's current description. ok is false if a call is working on the volume, or if the
	// volume is no longer staged.
	Hold(volumeID string) (v Volume, release func(), ok bool)
	// Adopt passes the paths of all mounts to the source, so that the source can find volumes that
	// an earlier release staged. The monitor calls Adopt once, before it calls any other method.
	Adopt(mounts []string) error
}

// A Kind identifies a type of problem with a volume.
type Kind string

// The kinds, from the least to the most severe.
const (
	OK           Kind = "ok"
	Unknown      Kind = "unknown"       // the kernel or the record could not be read
	PathsLost    Kind = "paths_lost"    // at least one path is working, and at least one is lost
	ReadOnly     Kind = "read_only"     // the kernel made the file system read-only after errors
	Connecting   Kind = "connecting"    // no path is working; the kernel is reconnecting; I/O waits
	Hanging      Kind = "hanging"       // a read of the kernel's state, or of the file system, does not end
	NotMounted   Kind = "not_mounted"   // nothing is mounted where the file system should be
	ShutDown     Kind = "shut_down"     // the kernel has shut the file system down after errors
	NoNamespace  Kind = "no_namespace"  // connected, but the target has no such volume there
	DeadMount    Kind = "dead_mount"    // the device below a mount has been removed
	NotConnected Kind = "not_connected" // no path is left: the kernel has given up
)

// Kinds lists all kinds, from the least to the most severe.
var Kinds = []Kind{OK, Unknown, PathsLost, ReadOnly, Connecting, Hanging, NotMounted, ShutDown, NoNamespace, DeadMount, NotConnected}

func (k Kind) severity() int { return slices.Index(Kinds, k) }

// A Finding describes one problem with a volume, and its remedy.
type Finding struct {
	Kind Kind
	Path string // path of the mount that has the problem; empty for other problems
	Text string
}

// A State is the result of the last check of a volume.
type State struct {
	Volume   Volume
	Findings []Finding // most severe first; none if the volume is healthy
	// Live and Expected count the volume's paths. If the paths are unknown, both counts are 0.
	Live, Expected int
	givenUp        int
}

// Kind returns the most severe kind of the findings.
func (s State) Kind() Kind {
	if len(s.Findings) == 0 {
		return OK
	}
	return s.Findings[0].Kind
}

// Has reports whether there is a finding of this kind.
func (s State) Has(k Kind) bool {
	return slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.Kind == k })
}

func (s *State) add(kind Kind, path, text string) {
	s.Findings = append(s.Findings, Finding{Kind: kind, Path: path, Text: text})
	slices.SortStableFunc(s.Findings, func(a, b Finding) int { return cmp.Compare(b.Kind.severity(), a.Kind.severity()) })
}

// kinds returns the kinds of the findings as one string. Changes of this string are logged.
func (s State) kinds() string {
	var names []string
	for _, f := range s.Findings {
		names = append(names, string(f.Kind)+" "+f.Path)
	}
	return strings.Join(names, ",")
}

// text describes all findings.
func (s State) text() string {
	var all []string
	for _, f := range s.Findings {
		all = append(all, f.Text)
	}
	return strings.Join(all, "; ")
}
