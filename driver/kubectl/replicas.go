package kubectl

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/driver/request"
)

// A ReplicatedVolume describes the replicas of a volume, as recorded in its witness.
type ReplicatedVolume struct {
	Namespace string `json:"namespace,omitempty"` // namespace of the PersistentVolumeClaim
	Claim     string `json:"claim,omitempty"`
	// Name is the name of the PersistentVolume; empty if only the witness exists.
	Name string `json:"name,omitempty"`
	ID   string `json:"id"`
	// State is the state of the volume, such as [Degraded].
	State string `json:"state"`
	// Writer is the node that may write; empty if the volume is not published.
	Writer   string    `json:"writer,omitempty"`
	Replicas []Replica `json:"replicas,omitempty"`
	Epoch    uint64    `json:"epoch,omitempty"`
}

// A Replica is one replica of a volume.
type Replica struct {
	Number int    `json:"number"`
	Server string `json:"server"`
	State  string `json:"state"` // current, rebuilding, discarded or missing
}

// States of replicated volumes.
const (
	New       = "New"       // no node has used the volume yet
	Complete  = "Complete"  // all replicas are current
	Degraded  = "Degraded"  // a replica is not current
	Deleting  = "Deleting"  // the witness is being deleted
	NoWitness = "NoWitness" // the witness does not exist
)

const (
	witnessGroup  = "spdkgate.io"
	witnessesPath = "/apis/" + witnessGroup + "/v1alpha1/replicatedvolumes"
)

type witness struct {
	Metadata metadata
	Spec     struct {
		Replicas []struct {
			Number int
			Server string
		}
		Writer struct {
			Node       string
			Generation uint64
		}
	}
	Status *struct {
		Epoch             uint64
		InSync, Discarded []int
		Held              struct {
			Generation uint64
			Replicas   []int
		}
	}
}

// ReplicatedVolumes returns the replicated volumes of a driver, and witnesses without a
// PersistentVolume, ordered by namespace and claim.
func (c Client) ReplicatedVolumes(ctx context.Context, driver string, f Filter) ([]ReplicatedVolume, error) {
	objects, err := c.persistentVolumes(ctx, driver)
	if err != nil {
		return nil, err
	}
	var all []witness
	installed, err := c.hasGroup(ctx, witnessGroup)
	if err == nil && installed {
		all, err = list[witness](ctx, c, witnessesPath, nil)
	}
	if err != nil {
		return nil, err
	}
	witnesses := map[string]witness{}
	for _, w := range all {
		witnesses[request.ReplicatedTarget+":"+w.Metadata.Name] = w
	}
	var volumes []ReplicatedVolume
	add := func(v Volume, r ReplicatedVolume) {
		if f.selects(v) {
			volumes = append(volumes, r)
		}
	}
	for _, o := range objects {
		v := volumeOf(o)
		id, err := request.ParseVolumeID(v.ID)
		if err != nil || !id.Replicated() {
			continue
		}
		r := ReplicatedVolume{State: NoWitness}
		if w, ok := witnesses[v.ID]; ok {
			r = replicasOf(w)
			delete(witnesses, v.ID)
		}
		r.Namespace, r.Claim, r.Name, r.ID = v.Namespace, v.Claim, v.Name, v.ID
		add(v, r)
	}
	for id, w := range witnesses {
		r := replicasOf(w)
		r.ID = id
		add(Volume{ID: id}, r)
	}
	slices.SortFunc(volumes, func(a, b ReplicatedVolume) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.ID, b.ID))
	})
	return volumes, nil
}

// replicasOf describes the replicas in a witness.
func replicasOf(w witness) ReplicatedVolume {
	v := ReplicatedVolume{State: New, Writer: w.Spec.Writer.Node}
	if w.Status != nil {
		v.State, v.Epoch = Complete, w.Status.Epoch
	}
	for _, s := range w.Spec.Replicas {
		r := Replica{Number: s.Number, Server: s.Server, State: "current"}
		if w.Status != nil && !slices.Contains(w.Status.InSync, s.Number) {
			v.State = Degraded
			switch {
			case w.Spec.Writer.Node != "" && w.Status.Held.Generation == w.Spec.Writer.Generation && slices.Contains(w.Status.Held.Replicas, s.Number):
				r.State = "rebuilding"
			case slices.Contains(w.Status.Discarded, s.Number):
				r.State = "discarded"
			default:
				r.State = "missing"
			}
		}
		v.Replicas = append(v.Replicas, r)
	}
	if w.Metadata.DeletionTimestamp != "" {
		v.State = Deleting
	}
	return v
}

// PrintReplicatedVolumes prints replicated volumes.
func PrintReplicatedVolumes(w io.Writer, format Format, volumes []ReplicatedVolume) error {
	servers := func(v ReplicatedVolume, current bool) string {
		var names []string
		for _, r := range v.Replicas {
			switch {
			case r.State == "current" && current:
				names = append(names, r.Server)
			case r.State != "current" && !current:
				names = append(names, r.Server+"("+r.State+")")
			}
		}
		return strings.Join(names, ",")
	}
	return printRows(w, format, []column[ReplicatedVolume]{
		{heading: "NAMESPACE", cell: func(v ReplicatedVolume) string { return v.Namespace }},
		{heading: "CLAIM", cell: func(v ReplicatedVolume) string { return v.Claim }},
		{heading: "VOLUME", cell: func(v ReplicatedVolume) string { return v.Name }},
		{heading: "STATE", cell: func(v ReplicatedVolume) string { return v.State }},
		{heading: "CURRENT", cell: func(v ReplicatedVolume) string { return servers(v, true) }},
		{heading: "OTHERS", cell: func(v ReplicatedVolume) string { return servers(v, false) }},
		{heading: "NODE", cell: func(v ReplicatedVolume) string { return v.Writer }},
		{heading: "EPOCH", wide: true, cell: func(v ReplicatedVolume) string { return strconv.FormatUint(v.Epoch, 10) }},
		{heading: "ID", wide: true, cell: func(v ReplicatedVolume) string { return v.ID }},
	}, volumes)
}
