package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// An Evacuation moves the volumes on a storage server to other servers.
type Evacuation struct {
	// Move describes how each volume is moved. Its claim is not used.
	Move
	// Server is the storage server that is emptied.
	Server string
}

// An Evacuee is an object on the storage server.
type Evacuee struct {
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"` // the claim or VolumeSnapshot
	Kind      string   `json:"kind"`           // claim, volume (without a claim) or snapshot
	ID        string   `json:"id"`
	Size      string   `json:"size,omitempty"`
	UsedBy    []string `json:"usedBy,omitempty"` // pods and nodes
	// Plan is one of the plans below.
	Plan string `json:"plan"`
	// Note explains the plan.
	Note string `json:"note"`
}

// These are the plans for an object.
const (
	PlanMove    = "move"
	PlanPrepare = "prepare"
	PlanInUse   = "in-use"
	PlanMoved   = "moved" // the claim uses the copy; the original is left
	PlanGiveUp  = "give-up"
	PlanNone    = "none"
)

// ErrUnfinished means that claims still use the storage server.
var ErrUnfinished = errors.New("the storage server is still in use")

// check fails if the parameters might create copies on the storage server that is emptied.
func (e Evacuation) check() error {
	targets := strings.Split(e.Parameters["target"], ",")
	if targets[0] == "" || slices.ContainsFunc(targets, func(t string) bool { return strings.TrimSpace(t) == e.Server }) {
		return fmt.Errorf("%w: --parameter=target= must name the storage servers that take over the volumes, and not %s", ErrNotMovable, e.Server)
	}
	return nil
}

// Plan returns the objects on the storage server, and what Run would do with them. It changes
// nothing.
func (e Evacuation) Plan(ctx context.Context) ([]Evacuee, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	objects, err := e.persistentVolumes(ctx, e.Driver)
	if err != nil {
		return nil, err
	}
	attached, err := e.attachments(ctx, e.Driver)
	if err != nil {
		return nil, err
	}
	pods, err := list[claimUser](ctx, e.Client, allPodsPath, nil)
	if err != nil {
		return nil, err
	}
	records, err := e.recordsOfMoves(ctx)
	if err != nil {
		return nil, err
	}
	var plan []Evacuee
	known, copies := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		copies[r.copied.text("spec", "csi", "volumeHandle")] = true
	}
	claimed := map[string]string{} // PersistentVolume of each claim
	for _, o := range objects {
		if o.Status.Phase == "Bound" {
			claimed[o.Spec.ClaimRef.Namespace+"/"+o.Spec.ClaimRef.Name] = o.Metadata.Name
		}
	}
	for _, o := range objects {
		v := volumeOf(o)
		known[v.ID] = true
		if v.Target != e.Server {
			continue
		}
		by := usersOf(v, pods, attached[v.Name])
		at := Evacuee{Namespace: v.Namespace, Name: v.Claim, Kind: "claim", ID: v.ID, Size: v.Size, UsedBy: by}
		at.Plan, at.Note = e.planFor(v, records[o.Metadata.UID], claimed[v.Namespace+"/"+v.Claim], by)
		if at.Plan == PlanNone {
			at.Kind = "volume"
		}
		plan = append(plan, at)
	}
	rest, err := e.withoutClaim(ctx, known, copies)
	plan = append(plan, rest...)
	slices.SortStableFunc(plan, func(a, b Evacuee) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return plan, err
}

// planFor returns the plan for a volume with a PersistentVolume. bound is the PersistentVolume to
// which its claim is bound.
func (e Evacuation) planFor(v Volume, r *record, bound string, by []string) (plan, note string) {
	m := e.of(v.Namespace, v.Claim)
	switch {
	case r != nil && r.state == stateKeeping:
		return PlanGiveUp, "its move is being given up: finish " + m.again("--keep-original")
	case r != nil && r.copied != nil && bound == r.copied.name() || r != nil && r.state == stateDeleted:
		return PlanMoved, "moved: when its pods have their data, run " + m.again("--delete-original")
	case r != nil && r.state == stateSwitching && bound != v.Name:
		return PlanMove, "moved now: an interrupted move is continued"
	case bound != v.Name || v.Claim == "":
		return PlanNone, "no claim uses it: it is not moved"
	case len(by) == 0:
		return PlanMove, "moved now"
	case e.Prepare:
		return PlanPrepare, "prepared now; then " + stop(by) + ", and repeat the command"
	}
	return PlanInUse, "in use: " + stop(by) + ", or add --prepare"
}

// usersOf returns the pods that name a volume's claim, and the nodes to which the volume is
// attached.
func usersOf(v Volume, pods []claimUser, attached []volumeAttachment) (by []string) {
	for _, p := range pods {
		if p.Metadata.Namespace == v.Namespace && p.uses(v.Claim) {
			by = append(by, "pod "+p.Metadata.Name)
		}
	}
	for _, a := range attached {
		by = append(by, "node "+a.Spec.NodeName)
	}
	return by
}

// stop explains how to end the use of a volume.
func stop(by []string) string {
	pods := slices.DeleteFunc(slices.Clone(by), func(user string) bool { return !strings.HasPrefix(user, "pod ") })
	if len(pods) == 0 {
		return "wait until it is detached from " + strings.Join(by, ", ")
	}
	return "stop " + strings.Join(pods, ", ")
}

// withoutClaim returns the snapshots on the storage server, and the volumes that have no
// PersistentVolume.
func (e Evacuation) withoutClaim(ctx context.Context, known, copies map[string]bool) (rest []Evacuee, err error) {
	snapshots, err := e.Snapshots(ctx, e.Driver, "")
	if err != nil {
		return nil, err
	}
	for _, s := range snapshots {
		if s.Target == e.Server {
			rest = append(rest, Evacuee{Namespace: s.Namespace, Name: s.Name, Kind: "snapshot", ID: s.ID, Size: size(s.SizeBytes), Plan: PlanNone, Note: "snapshots are not moved"})
		}
	}
	inv, err := e.Inventory(ctx, e.Server)
	if err := errors.Join(err, Unread(inv)); err != nil {
		return nil, err
	}
	for _, t := range inv.Targets {
		for _, v := range t.Volumes {
			if _, uuid, _ := strings.Cut(v.ID, ":"); known[v.ID] || known[uuid] {
				continue
			}
			note := "no PersistentVolume of this cluster: see kubectl spdkgate doctor and kubectl spdkgate replicas"
			if copies[v.ID] {
				note = "the copy of an unfinished move"
			}
			rest = append(rest, Evacuee{Name: v.Name, Kind: "volume", ID: v.ID, Size: size(v.SizeBytes), Plan: PlanNone, Note: note})
		}
	}
	return rest, nil
}

// of returns the move of a claim.
func (e Evacuation) of(namespace, claim string) Move {
	m := e.Move
	m.Namespace, m.Claim = namespace, claim
	return m
}

// Run moves the volumes of a plan, one after the other, and continues after a failure. It returns
// ErrUnfinished if a claim still uses the storage server.
func (e Evacuation) Run(ctx context.Context, plan []Evacuee) error {
	counts, left := map[string]int{}, 0
	for i, at := range plan {
		if at.Plan != PlanMove && at.Plan != PlanPrepare {
			counts[at.Plan]++
			if at.Plan == PlanInUse || at.Plan == PlanGiveUp {
				left++
			}
			continue
		}
		fmt.Fprintf(e.Notes, "%d of %d: claim %s/%s\n", i+1, len(plan), at.Namespace, at.Name)
		m := e.of(at.Namespace, at.Name)
		m.Prepare = at.Plan == PlanPrepare
		m.Parameters = nil
		if r, err := m.loadRecord(ctx); err == nil && r == nil { // else the recorded parameters apply
			m.Parameters = e.Parameters
		}
		err := m.Run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(e.Notes, "claim %s/%s was not moved: %v\n", at.Namespace, at.Name, err)
			counts["failed"]++
		} else {
			counts[at.Plan]++
		}
		if err != nil || m.Prepare {
			left++
		}
	}
	fmt.Fprintf(e.Out, "%d moved, %d prepared, %d failed, %d in use; moved before: %d; not to be moved: %d\n",
		counts[PlanMove], counts[PlanPrepare], counts["failed"], counts[PlanInUse]+counts[PlanGiveUp], counts[PlanMoved], counts[PlanNone])
	if left > 0 {
		return fmt.Errorf("%w by %d claims: repeat this command when their pods are stopped and the failures are repaired", ErrUnfinished, left)
	}
	return nil
}

// PrintEvacuees prints a plan.
func PrintEvacuees(w io.Writer, format Format, plan []Evacuee) error {
	return printRows(w, format, []column[Evacuee]{
		{heading: "NAMESPACE", cell: func(e Evacuee) string { return e.Namespace }},
		{heading: "NAME", cell: func(e Evacuee) string { return e.Name }},
		{heading: "KIND", cell: func(e Evacuee) string { return e.Kind }},
		{heading: "SIZE", cell: func(e Evacuee) string { return e.Size }},
		{heading: "USED-BY", cell: func(e Evacuee) string { return strings.Join(e.UsedBy, ", ") }},
		{heading: "PLAN", cell: func(e Evacuee) string { return e.Note }},
		{heading: "ID", wide: true, cell: func(e Evacuee) string { return e.ID }},
	}, plan)
}
