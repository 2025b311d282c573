package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A loadClient makes calls, and records the state that the successful ones have left.
type loadClient struct {
	*driverTestbed
	name      string
	transport export.Transport
	random    *rand.Rand
	succeeded *atomic.Int64 // calls of all clients
	created   int
	history   []string // of calls and their errors

	volumes   map[string]*loadVolume // by id
	snapshots map[string]string      // source by id
	fenced    map[string]bool        // by node
}

type loadVolume struct {
	bytes int64
	mode  csi.VolumeCapability_AccessMode_Mode
	hosts []string // nodes, sorted
}

// step makes one random call, and repeats it until it succeeds.
func (c *loadClient) step() error {
	volumes, snapshots := slices.Sorted(maps.Keys(c.volumes)), slices.Sorted(maps.Keys(c.snapshots))
	if len(volumes) == 0 {
		return c.create(nil)
	}
	id := volumes[c.random.IntN(len(volumes))]
	v, node := c.volumes[id], fmt.Sprintf("%s-node%d", c.name, c.random.IntN(2))
	switch c.random.IntN(11) {
	case 0:
		if len(volumes) > 4 {
			return c.delete(id)
		}
		return c.create(nil)
	case 1:
		if len(snapshots) > 0 && len(volumes) < 6 {
			return c.create(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshots[c.random.IntN(len(snapshots))]}}})
		}
		return c.create(nil)
	case 2:
		if len(v.hosts) == 0 && len(volumes) < 6 {
			return c.create(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}})
		}
		return c.unpublishAll(id)
	case 3:
		if len(v.hosts) == 0 && len(snapshots) < 4 {
			return c.snapshotOf(id)
		}
		return c.unpublishAll(id)
	case 4:
		if len(snapshots) > 0 {
			return c.deleteSnapshot(snapshots[c.random.IntN(len(snapshots))])
		}
		return c.unpublishAll(id)
	case 5:
		return c.delete(id)
	case 6:
		return c.expand(id)
	case 7:
		return c.fence(node)
	case 8:
		return c.unfence(node)
	default:
		return c.admit(id, node)
	}
}

// retry makes a call until it succeeds, or fails with one of the final errors.
func (c *loadClient) retry(call string, do func(ctx context.Context) error, final ...error) error {
	for deadline := time.Now().Add(3 * long); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.t.Context(), long)
		began := time.Now()
		err := do(ctx)
		cancel()
		c.history = append(c.history, fmt.Sprintf("%s to %s: %s: %s: %v", began.Format("05.000"), time.Now().Format("05.000"), c.name, call, err))
		if err == nil || slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
			c.succeeded.Add(1)
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %s: %w", c.name, call, err)
		}
	}
}

func (c *loadClient) create(source *csi.VolumeContentSource) error {
	c.created++
	v := &loadVolume{bytes: volumeBytes, mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	if c.transport != export.ISCSI && c.random.IntN(3) == 0 {
		v.mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	}
	if s := source.GetVolume().GetVolumeId(); s != "" {
		v.bytes = c.volumes[s].bytes
	} else if source != nil {
		v.bytes = 2 * volumeBytes // no snapshot is larger
	}
	var id string
	err := c.retry("create", func(ctx context.Context) error {
		created, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: fmt.Sprintf("%s-pvc%d", c.name, c.created), CapacityRange: &csi.CapacityRange{RequiredBytes: v.bytes}, VolumeContentSource: source, Parameters: parameters,
			VolumeCapabilities: []*csi.VolumeCapability{capability(v.mode)},
		})
		id = created.GetVolume().GetVolumeId()
		return err
	}, volume.ErrTooOld)
	if err == nil {
		c.volumes[id] = v
	}
	return unlessTooOld(err)
}

func (c *loadClient) delete(id string) error {
	if err := c.unpublishAll(id); err != nil {
		return err
	}
	err := c.retry("delete "+id, func(ctx context.Context) error {
		_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		return err
	})
	if err == nil {
		delete(c.volumes, id)
	}
	return err
}

func (c *loadClient) unpublishAll(id string) error {
	for _, node := range slices.Clone(c.volumes[id].hosts) {
		if err := c.unpublish(id, node); err != nil {
			return err
		}
	}
	return nil
}

func (c *loadClient) unpublish(id, node string) error {
	err := c.retry("unpublish "+id+" from "+node, func(ctx context.Context) error {
		_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
		return err
	})
	if err == nil {
		c.volumes[id].hosts = slices.DeleteFunc(c.volumes[id].hosts, func(h string) bool { return h == node })
	}
	return err
}

// admit publishes a volume to a node. If the node is fenced, the call must be refused.
func (c *loadClient) admit(id, node string) error {
	v := c.volumes[id]
	if v.mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER && len(v.hosts) > 0 && !slices.Contains(v.hosts, node) {
		return c.unpublishAll(id)
	}
	err := c.retry("publish "+id+" to "+node, func(ctx context.Context) error {
		_, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: capability(v.mode)})
		return err
	}, export.ErrFenced)
	switch {
	case errors.Is(err, export.ErrFenced) && c.fenced[node]:
		return nil
	case err == nil && c.fenced[node]:
		return fmt.Errorf("%s: volume %s was published to the fenced node %s", c.name, id, node)
	case err == nil && !slices.Contains(v.hosts, node):
		v.hosts = append(v.hosts, node)
		slices.Sort(v.hosts)
	}
	return err
}

func (c *loadClient) snapshotOf(id string) error {
	c.created++
	var snapshot string
	err := c.retry("snapshot of "+id, func(ctx context.Context) error {
		s, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: fmt.Sprintf("%s-snapshot%d", c.name, c.created), SourceVolumeId: id})
		snapshot = s.GetSnapshot().GetSnapshotId()
		return err
	})
	if err == nil {
		c.snapshots[snapshot] = id
	}
	return err
}

// deleteSnapshot deletes a snapshot, unless it has several clones, or a clone whose I/O cannot be
// held back.
func (c *loadClient) deleteSnapshot(id string) error {
	err := c.retry("delete snapshot "+id, func(ctx context.Context) error {
		_, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		return err
	}, export.ErrInUse, spdkrpc.InUse)
	if errors.Is(err, export.ErrInUse) || errors.Is(err, spdkrpc.InUse) {
		return nil
	}
	if err == nil {
		delete(c.snapshots, id)
	}
	return err
}

func (c *loadClient) expand(id string) error {
	v := c.volumes[id]
	err := c.retry("expand "+id, func(ctx context.Context) error {
		_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * volumeBytes}, VolumeCapability: capability(v.mode)})
		return err
	}, volume.ErrTooOld)
	if err == nil {
		v.bytes = 2 * volumeBytes
	}
	return unlessTooOld(err)
}

// unlessTooOld returns nil if a release before v24.05 cannot expand a clone. Otherwise, it returns
// err.
func unlessTooOld(err error) error {
	if errors.Is(err, volume.ErrTooOld) {
		return nil
	}
	return err
}

func (c *loadClient) fence(node string) error {
	err := c.retry("fence "+node, func(ctx context.Context) error {
		target, err := c.DoctorTargets()
		if err == nil {
			_, err = target[0].Fence(ctx, controller.HostOf(node), node, false)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.fenced[node] = true
	for id, v := range c.volumes { // as Kubernetes does for a node that is out of service
		if slices.Contains(v.hosts, node) {
			if err := c.unpublish(id, node); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *loadClient) unfence(node string) error {
	err := c.retry("unfence "+node, func(ctx context.Context) error {
		target, err := c.DoctorTargets()
		if err == nil {
			_, err = target[0].Unfence(ctx, controller.HostOf(node), false)
		}
		return err
	})
	if err == nil {
		delete(c.fenced, node)
	}
	return err
}

// clear deletes the client's volumes, and then its snapshots.
func (c *loadClient) clear() {
	for id := range maps.Clone(c.volumes) {
		require.NoError(c.t, c.delete(id))
	}
	for range 5 { // a snapshot with several clones is deleted after all but one of them
		for id := range maps.Clone(c.snapshots) {
			require.NoError(c.t, c.deleteSnapshot(id))
		}
	}
	assert.Empty(c.t, c.snapshots)
}
