package kubernetes

import (
	"context"
	"errors"
)

// Remaining contains the names of a driver's objects that still exist in Kubernetes.
type Remaining struct {
	Volumes   []string // PersistentVolumes
	Snapshots []string // VolumeSnapshotContents
}

// Remaining lists the volumes and snapshots of a driver, page by page. A cluster without the
// snapshot API has no snapshots.
func (c *Client) Remaining(ctx context.Context, driver string) (r Remaining, err error) {
	r.Volumes, err = c.names(ctx, volumesPath, func(o spec) bool { return o.CSI.Driver == driver })
	if err != nil {
		return r, err
	}
	r.Snapshots, err = c.names(ctx, "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents", func(o spec) bool { return o.Driver == driver })
	if errors.Is(err, ErrNotFound) {
		return r, nil
	}
	return r, err
}

// spec contains the fields that identify the driver: CSI in a PersistentVolume, Driver in a
// VolumeSnapshotContent.
type spec struct {
	CSI    struct{ Driver string }
	Driver string
}

// names returns the names of the objects in a list for which the function of returns true.
func (c *Client) names(ctx context.Context, path string, of func(spec) bool) (names []string, err error) {
	type object struct {
		Metadata struct{ Name string }
		Spec     spec
	}
	err = each(ctx, c, path, func(o object) {
		if of(o.Spec) {
			names = append(names, o.Metadata.Name)
		}
	})
	return names, err
}
