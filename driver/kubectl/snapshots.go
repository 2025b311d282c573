package kubectl

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A Snapshot is one of the driver's VolumeSnapshotContents.
type Snapshot struct {
	Namespace string `json:"namespace,omitempty"` // namespace of the VolumeSnapshot
	Name      string `json:"name,omitempty"`
	Content   string `json:"content"`
	ID        string `json:"id,omitempty"`
	Target    string `json:"target,omitempty"`
	// Source is the PersistentVolumeClaim of the snapshot's volume, or the volume's id if the
	// volume has no PersistentVolume.
	Source    string     `json:"source,omitempty"`
	SizeBytes int64      `json:"sizeBytes,omitempty"`
	Status    string     `json:"status"` // Ready, Pending, Failed or Terminating
	Created   *time.Time `json:"created,omitempty"`
	Class     string     `json:"class,omitempty"`
	Policy    string     `json:"deletionPolicy,omitempty"`
	Group     string     `json:"group,omitempty"`
	Message   string     `json:"message,omitempty"` // the reason for the status Failed
	// Undeletable is the reason, with a remedy, why a snapshot that Kubernetes is deleting still
	// exists.
	Undeletable string `json:"undeletable,omitempty"`
}

// Terminating returns the ids of the snapshots that Kubernetes is deleting.
func Terminating(snapshots []Snapshot) (ids []string) {
	for _, s := range snapshots {
		if s.Status == terminating && s.Target != "" {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// AddUndeletable adds to snapshots the reasons why the targets cannot delete them.
func AddUndeletable(snapshots []Snapshot, from inventory.Inventory) {
	why := map[string]string{}
	for _, t := range from.Targets {
		for _, s := range t.Snapshots {
			why[s.ID] = s.Undeletable
		}
	}
	for i := range snapshots {
		snapshots[i].Undeletable = why[snapshots[i].ID]
	}
}

const terminating = "Terminating"

// Snapshots returns a driver's snapshots in all namespaces, or in one namespace if it is not empty.
// It orders them by namespace and name.
func (c Client) Snapshots(ctx context.Context, driver, namespace string) ([]Snapshot, error) {
	contents, err := c.snapshotContents(ctx, driver)
	if err != nil {
		return nil, err
	}
	volumes, err := c.persistentVolumes(ctx, driver)
	if err != nil {
		return nil, err
	}
	claims := map[string]string{}
	for _, v := range volumes {
		claims[v.Spec.CSI.VolumeHandle] = v.Spec.ClaimRef.Name
	}
	var snapshots []Snapshot
	for _, o := range contents {
		if s := snapshotOf(o, claims); namespace == "" || s.Namespace == namespace {
			snapshots = append(snapshots, s)
		}
	}
	slices.SortFunc(snapshots, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Content, b.Content))
	})
	return snapshots, nil
}

func snapshotOf(o snapshotContent, claims map[string]string) Snapshot {
	s := Snapshot{
		Namespace: o.Spec.VolumeSnapshotRef.Namespace, Name: o.Spec.VolumeSnapshotRef.Name, Content: o.Metadata.Name,
		ID: cmp.Or(o.Status.SnapshotHandle, o.Spec.Source.SnapshotHandle), SizeBytes: o.Status.RestoreSize,
		Source: cmp.Or(claims[o.Spec.Source.VolumeHandle], o.Spec.Source.VolumeHandle),
		Class:  o.Spec.VolumeSnapshotClassName, Policy: o.Spec.DeletionPolicy, Group: o.Status.VolumeGroupSnapshotHandle, Message: o.Status.Error.Message,
	}
	if id, err := request.ParseVolumeID(s.ID); err == nil {
		s.Target = id.Target
	}
	if o.Status.CreationTime > 0 {
		s.Created = new(time.Unix(0, o.Status.CreationTime).UTC())
	}
	switch {
	case o.Metadata.DeletionTimestamp != "":
		s.Status = terminating
	case o.Status.ReadyToUse:
		s.Status = "Ready"
	case s.Message != "":
		s.Status = "Failed"
	default:
		s.Status = "Pending"
	}
	return s
}
