package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// These are paths of the Kubernetes API.
const (
	volumesPath     = "/api/v1/persistentvolumes"
	attachmentsPath = "/apis/storage.k8s.io/v1/volumeattachments"
	capacitiesPath  = "/apis/storage.k8s.io/v1/csistoragecapacities"
	csiNodesPath    = "/apis/storage.k8s.io/v1/csinodes"
	nodesPath       = "/api/v1/nodes"
	allPodsPath     = "/api/v1/pods"
	groupsPath      = "/apis"
	snapshotGroup   = "snapshot.storage.k8s.io"
	contentsPath    = "/apis/" + snapshotGroup + "/v1/volumesnapshotcontents"
)

type metadata struct {
	Name, UID, DeletionTimestamp string
}

type persistentVolume struct {
	Metadata metadata
	Spec     struct {
		Capacity         struct{ Storage string }
		AccessModes      []string
		VolumeMode       string
		StorageClassName string
		ClaimRef         struct{ Namespace, Name string }
		CSI              struct {
			Driver, VolumeHandle string
			VolumeAttributes     map[string]string
		}
	}
	Status struct{ Phase string }
}

type volumeAttachment struct {
	Metadata metadata
	Spec     struct {
		Attacher, NodeName string
		Source             struct{ PersistentVolumeName string }
	}
	Status struct {
		Attached bool
	}
}

type csiNode struct {
	Metadata metadata
	Spec     struct {
		Drivers []csiNodeDriver
	}
}

type csiNodeDriver struct {
	Name, NodeID string
	Allocatable  struct{ Count *int64 }
}

// podsPath returns the path of the pods in a namespace.
func podsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// deploymentPath returns the path of a deployment.
func deploymentPath(namespace, name string) string {
	return "/apis/apps/v1/namespaces/" + namespace + "/deployments/" + name
}

type deployment struct {
	Spec struct {
		Selector struct{ MatchLabels map[string]string }
	}
}

type pod struct {
	Metadata metadata
	Spec     struct {
		NodeName   string
		Containers []struct{ Name, Image string }
	}
	Status struct{ Conditions []condition }
}

type node struct {
	Metadata metadata
	Spec     struct{ Taints []taint }
	Status   struct{ Conditions []condition }
}

type condition struct{ Type, Status string }

type taint struct{ Key string }

type snapshotContent struct {
	Metadata metadata
	Spec     struct {
		Driver, DeletionPolicy, VolumeSnapshotClassName string
		Source                                          struct{ VolumeHandle, SnapshotHandle string }
		VolumeSnapshotRef                               struct{ Namespace, Name string }
	}
	Status struct {
		SnapshotHandle, VolumeGroupSnapshotHandle string
		CreationTime                              int64 // nanoseconds since 1970
		RestoreSize                               int64
		ReadyToUse                                bool
		Error                                     struct{ Message string }
	}
}

type storageCapacity struct {
	StorageClassName            string
	NodeTopology                struct{ MatchLabels map[string]string }
	Capacity, MaximumVolumeSize string
}

// persistentVolumes returns a driver's PersistentVolumes.
func (c Client) persistentVolumes(ctx context.Context, driver string) ([]persistentVolume, error) {
	all, err := list[persistentVolume](ctx, c, volumesPath, nil)
	return slices.DeleteFunc(all, func(v persistentVolume) bool { return v.Spec.CSI.Driver != driver }), err
}

// attachments returns a driver's VolumeAttachments, by PersistentVolume name.
func (c Client) attachments(ctx context.Context, driver string) (map[string][]volumeAttachment, error) {
	all, err := list[volumeAttachment](ctx, c, attachmentsPath, nil)
	if err != nil {
		return nil, err
	}
	byVolume := map[string][]volumeAttachment{}
	for _, a := range all {
		if name := a.Spec.Source.PersistentVolumeName; a.Spec.Attacher == driver {
			byVolume[name] = append(byVolume[name], a)
		}
	}
	return byVolume, nil
}

// Nodes returns the names of the nodes on which a driver is registered.
func (c Client) Nodes(ctx context.Context, driver string) (names []string, err error) {
	all, err := list[csiNode](ctx, c, csiNodesPath, nil)
	for _, n := range all {
		if slices.ContainsFunc(n.Spec.Drivers, func(d csiNodeDriver) bool { return d.Name == driver }) {
			names = append(names, n.Metadata.Name)
		}
	}
	return names, err
}

// hasGroup reports whether the cluster has an API group that is installed separately.
func (c Client) hasGroup(ctx context.Context, name string) (bool, error) {
	var groups struct{ Groups []struct{ Name string } }
	if err := c.get(ctx, groupsPath, nil, &groups); err != nil {
		return false, err
	}
	return slices.ContainsFunc(groups.Groups, func(g struct{ Name string }) bool { return g.Name == name }), nil
}

// snapshotContents returns a driver's VolumeSnapshotContents.
func (c Client) snapshotContents(ctx context.Context, driver string) ([]snapshotContent, error) {
	if there, err := c.hasGroup(ctx, snapshotGroup); err != nil || !there {
		return nil, err
	}
	all, err := list[snapshotContent](ctx, c, contentsPath, nil)
	return slices.DeleteFunc(all, func(s snapshotContent) bool { return s.Spec.Driver != driver }), err
}

// everything returns all PersistentVolumes, VolumeAttachments and VolumeSnapshotContents as one
// document, in the format that spdk-csi doctor reads.
func (c Client) everything(ctx context.Context) ([]byte, error) {
	kinds := []struct{ kind, path string }{{"PersistentVolumeList", volumesPath}, {"VolumeAttachmentList", attachmentsPath}}
	there, err := c.hasGroup(ctx, snapshotGroup)
	if err != nil {
		return nil, err
	}
	if there {
		kinds = append(kinds, struct{ kind, path string }{"VolumeSnapshotContentList", contentsPath})
	}
	var all struct {
		Kind  string `json:"kind"`
		Items []any  `json:"items"`
	}
	all.Kind = "List"
	for _, k := range kinds {
		items, err := list[json.RawMessage](ctx, c, k.path, nil)
		if err != nil {
			return nil, err
		}
		all.Items = append(all.Items, map[string]any{"kind": k.kind, "items": items})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("write the list of volumes: %w", err)
	}
	return text, nil
}
