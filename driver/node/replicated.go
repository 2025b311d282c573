package node

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A Healer runs the mirrors of replicated volumes. *heal.Healer implements it.
type Healer interface {
	Stage(ctx context.Context, v heal.Volume) (device string, err error)
	Unstage(ctx context.Context, v heal.Volume) error
	Watch(v heal.Volume) error
	State(name string) (heal.State, bool)
}

// SetHealer sets the Healer, and makes it watch the volumes that an earlier process has staged.
// Without a Healer, the node refuses replicated volumes. Call SetHealer before the node serves
// requests.
func (n *Node) SetHealer(h Healer) {
	n.healer = h
	all, err := n.staged.all()
	if err != nil {
		n.log.Error("replicated volumes that are staged are not healed until they are staged again", "error", err)
	}
	for id, staging := range all {
		record, found, err := readRecord(staging, id)
		if err == nil && found && record.replicated() {
			err = h.Watch(*record.Replicated)
		}
		if err != nil {
			n.log.Error("a volume is not healed until it is staged again", "volume", id, "error", err)
		}
	}
}

func (r stageRecord) replicated() bool { return r.Replicated != nil }

// readReplicated reads the description of a replicated volume from its contexts. It returns nil if
// the volume is not replicated.
func readReplicated(volumeID, node string, volume, published, topology map[string]string) (*heal.Volume, error) {
	if volume[request.KeyReplicated] == "" && published[request.KeyReplicated] == "" {
		return nil, nil
	}
	id, err := request.ParseVolumeID(volumeID)
	if err != nil {
		return nil, err
	}
	r, err := request.ParseReplicated(published[request.KeyReplicated])
	if err != nil {
		return nil, fmt.Errorf("%w: check that this driver's controller has published the volume, and that attachRequired is true in its CSIDriver", err)
	}
	if !id.Replicated() || r.UID == "" || filepath.Base(r.UID) != r.UID || r.Generation == 0 {
		return nil, fmt.Errorf("%w: the publish context of volume %s has no witness or generation: %s", request.ErrInvalid, id, published[request.KeyReplicated])
	}
	v := &heal.Volume{Name: id.UUID, UID: r.UID, SizeBytes: r.SizeBytes, Node: node, Generation: r.Generation}
	for _, x := range r.Replicas {
		m := map[string]string{}
		for _, key := range connect.OptionKeys {
			if value, ok := volume[key]; ok {
				m[key] = value
			}
		}
		maps.Copy(m, x.Export)
		// The healer decides when to drop a replica, so the kernel must hold the I/O until then.
		m["ctrl_loss_tmo"], m["fast_io_fail_tmo"] = "-1", "-1"
		e, err := connect.ParseExport(m, topology)
		if err != nil {
			return nil, fmt.Errorf("replica %d on server %s: %w", x.Number, x.Server, err)
		}
		if e.Transport != connect.TCP && e.Transport != connect.RDMA {
			return nil, fmt.Errorf("%w: replica %d on server %s is exported over %s: replicas need NVMe-oF", request.ErrUnsupported, x.Number, x.Server, e.Transport)
		}
		v.Replicas = append(v.Replicas, heal.Replica{ID: replica.ID(x.Number), Server: x.Server, UUID: x.UUID, Export: e})
	}
	return v, nil
}

// checkReplicated fails if the node cannot use a replicated volume, or if another publication of
// the volume is staged.
func (n *Node) checkReplicated(wanted *heal.Volume, record stageRecord, staged bool) error {
	if wanted != nil && n.healer == nil {
		return fmt.Errorf("%w: the volume is replicated, and this node has no access to the Kubernetes API for replicated volumes: install the component replication", request.ErrUnsupported)
	}
	if !staged {
		return nil
	}
	if record.replicated() != (wanted != nil) || wanted != nil && (record.Replicated.Generation != wanted.Generation || record.Replicated.UID != wanted.UID) {
		return fmt.Errorf("%w: another publication of the volume is staged at this path: unstage it first", request.ErrConflict)
	}
	return nil
}

// attach connects a volume, and returns its device.
func (n *Node) attach(ctx context.Context, r stageRecord) (connect.Device, error) {
	if !r.replicated() {
		return n.connector.Connect(ctx, r.Export)
	}
	if n.healer == nil {
		return connect.Device{}, n.checkReplicated(r.Replicated, r, true)
	}
	path, err := n.healer.Stage(ctx, *r.Replicated)
	return connect.Device{Path: path, SizeBytes: r.Replicated.SizeBytes}, err
}

// findDevice returns the device of a staged volume.
func (n *Node) findDevice(ctx context.Context, r stageRecord) (connect.Device, error) {
	if r.replicated() {
		return n.attach(ctx, r) // this changes nothing if the mirror is running
	}
	return n.connector.Find(ctx, r.Export)
}

// detach disconnects a volume. Its device must no longer be in use.
func (n *Node) detach(ctx context.Context, r stageRecord) error {
	switch {
	case r.replicated() && n.healer == nil:
		return n.checkReplicated(r.Replicated, r, true)
	case r.replicated():
		for _, t := range r.Targets {
			if r.Block && n.isMounted(t) {
				return fmt.Errorf("%w: the volume is published at %s: unpublish it first", mirror.ErrBusy, t)
			}
		}
		return n.healer.Unstage(ctx, *r.Replicated)
	case r.Export.IsZero():
		return nil
	}
	return n.connector.Disconnect(ctx, r.Export)
}

// usedID returns the name of the mark for a volume that has been used on this node. For a
// replicated volume, this is the UID of the witness, because a later volume with the same name has
// a different witness.
func usedID(volumeID string, v *heal.Volume) string {
	if v != nil {
		return v.UID
	}
	return volumeID
}
