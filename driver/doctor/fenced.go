package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
)

// fencedNode returns the node of a fence mark: a node that Kubernetes lists, or else the label of
// the mark. exact reports whether the result is the node's id.
func (e Examination) fencedNode(f export.FencedHost, known *Known) (node string, exact bool) {
	if e.Hosts == nil {
		return f.Label, false
	}
	if f.Label != "" && f.Is(e.Hosts(f.Label)) {
		return f.Label, true
	}
	if known != nil {
		for _, attachments := range known.Attached {
			for _, a := range attachments {
				if f.Is(e.Hosts(a.Node)) {
					return a.Node, true
				}
			}
		}
	}
	return f.Label, false
}

// ofFenced returns a finding for each fenced node.
func (e Examination) ofFenced(r *Reading, known *Known) (found []Finding) {
	for _, f := range r.fenced {
		node, exact := e.fencedNode(f, known)
		object, argument := "node "+node, node
		if !exact {
			argument = "NODE"
			if object = "the node whose host NQN ends in " + f.ID(); node != "" {
				object += " (its name begins with " + node + ")"
			}
		}
		problem := "it is fenced: no volume of this target is published to it"
		if volumes := e.attachedTo(r, f, known); len(volumes) > 0 {
			problem += ", though Kubernetes attaches " + strings.Join(volumes, ", ") + " to it"
		}
		found = append(found, r.finding(Fenced, object, "", problem).
			byHand(fmt.Sprintf("restart the node, so that it has no pending writes; then spdk-csi unfence --node %s --yes", argument)))
	}
	return found
}

// attachedTo lists the volumes that Kubernetes has attached to a fenced node.
func (e Examination) attachedTo(r *Reading, f export.FencedHost, known *Known) (names []string) {
	if known == nil || e.Hosts == nil {
		return nil
	}
	for _, l := range r.lvols {
		id := r.id(l.UUID)
		if slices.ContainsFunc(known.Attached[id], func(a Attachment) bool { return f.Is(e.Hosts(a.Node)) }) {
			names = append(names, cmp.Or(known.Volumes[id].Name, id))
		}
	}
	slices.Sort(names)
	return names
}

// fenceExplains reports whether a fence may be the reason why an export admits no host.
func (e Examination) fenceExplains(r *Reading, uuid string, known *Known) bool {
	if known == nil || known.Attached == nil || e.Hosts == nil {
		return len(r.fenced) > 0
	}
	return slices.ContainsFunc(known.Attached[r.id(uuid)], func(a Attachment) bool { return r.isFenced(e.Hosts(a.Node)) })
}

func (r *Reading) isFenced(h export.Host) bool {
	return slices.ContainsFunc(r.fenced, func(f export.FencedHost) bool { return f.Is(h) })
}
