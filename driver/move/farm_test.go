package move

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

var (
	original = request.VolumeID{Target: "old", UUID: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}
	copied   = request.VolumeID{Target: "new", UUID: "5d1fa6ea-6cd5-4a51-8a0b-3f1b47a5d9f0"}
	other    = request.VolumeID{Target: "other", UUID: "d4a2f0b3-8a1c-4f6e-9b55-3c1a2b7e6f01"} // the copy on another target
	source   = request.VolumeID{Target: "old", UUID: "0c3fb1be-1f0c-4b0f-a2f7-19d6a4a5f6f1"}
	snapshot = request.VolumeID{Target: "old", UUID: "7a6c1c0e-9a55-4bb1-8f0d-0a7f6f3c2d10"}
)

// The nodes that exist only for the moves to the two targets.
var (
	mover      = NodeOf(original, copied)
	otherMover = NodeOf(original, other)
)

// elsewhere contains the parameters for the copy on the other target.
var elsewhere = map[string]string{"target": "other"}

var (
	errInjected = errors.New("injected failure")
	errUnknown  = errors.New("the proxy refuses")
)

// A farm simulates a controller and a connector, with files as volumes. It makes the failAt-th call
// fail, before or after executing it.
type farm struct {
	t       *testing.T
	dir     string
	node    map[string]string // node by volume
	named   map[string]string // name by volume
	used    map[string]bool
	growing int64 // number of bytes by which new volumes exceed the requested size
	// attached counts the attached devices of each volume.
	attached map[string]int
	calls    int
	failAt   int
	executed bool
	// dies makes all later calls fail as well.
	dies bool
	// requires is the authentication method that CreateVolume puts into volume contexts.
	requires string
	// authenticated lists the volumes that have been published with keys.
	authenticated []string
	// connecting is called when a volume is attached.
	connecting func(id string)
	// allocated returns the allocated clusters of a volume. If allocated is nil, the clusters are
	// unknown.
	allocated func(id string) (inventory.Allocation, error)
	cluster   int64 // cluster size in bytes, for tests that need it
	// copies contains the id of the next copy on each target.
	copies map[string]request.VolumeID
	// next is the id of the next snapshot.
	next request.VolumeID
	// changed returns the clusters of a volume that differ from the snapshot base. If changed is
	// nil, they are unknown.
	changed func(id, base string) (inventory.Allocation, error)
}

func newFarm(t *testing.T, contents []byte) *farm {
	f := &farm{t: t, dir: t.TempDir(), node: map[string]string{}, named: map[string]string{}, used: map[string]bool{}, attached: map[string]int{}, copies: map[string]request.VolumeID{"": copied, "other": other}, next: snapshot}
	f.named[original.String()] = "pvc-1"
	f.used[original.String()] = true
	require.NoError(t, os.WriteFile(f.file(original.String()), contents, 0o600))
	return f
}

func (f *farm) mover() Mover {
	return Mover{Controller: f, Connector: func(node string) (connect.Connector, error) { return connector{f, node}, nil }, Pause: time.Nanosecond}
}

// restart ends all simulated processes, and lets calls succeed again.
func (f *farm) restart() { f.dies, f.failAt, f.attached = false, 0, map[string]int{} }

// A connector connects to the targets of a farm as a node.
type connector struct {
	*farm
	node string
}

func (f *farm) file(id string) string { return filepath.Join(f.dir, id) }

func (f *farm) contents(id request.VolumeID) []byte {
	text, err := os.ReadFile(f.file(id.String()))
	require.NoError(f.t, err)
	return text
}

func (f *farm) fails() (before, after error) {
	f.calls++
	switch {
	case f.dies && f.calls > f.failAt:
		return errInjected, nil
	case f.calls != f.failAt:
		return nil, nil
	case f.executed:
		return nil, errInjected
	}
	return errInjected, nil
}

func (f *farm) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	id := f.copies[req.GetParameters()["target"]].String()
	if from := req.GetVolumeContentSource().GetSnapshot().GetSnapshotId(); from != "" {
		id = source.String()
		text, err := os.ReadFile(f.file(from))
		require.NoError(f.t, err)
		if f.named[id] == "" {
			f.named[id] = req.GetName()
			require.NoError(f.t, os.WriteFile(f.file(id), text, 0o600))
		}
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: int64(len(text))}}, after
	}
	if req.GetParameters()["target"] == "itself" {
		id = original.String()
	} else if f.named[id] == "" {
		f.named[id] = req.GetName()
		require.NoError(f.t, os.WriteFile(f.file(id), nil, 0o600))
		require.NoError(f.t, os.Truncate(f.file(id), req.GetCapacityRange().GetRequiredBytes()+f.growing))
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: req.GetCapacityRange().GetRequiredBytes() + f.growing, VolumeContext: map[string]string{hostauth.KeyMethod: f.requires}}}, after
}

func (f *farm) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	require.Empty(f.t, f.node[req.GetVolumeId()], "deleted while published")
	delete(f.named, req.GetVolumeId())
	require.NoError(f.t, os.Remove(f.file(req.GetVolumeId())))
	return &csi.DeleteVolumeResponse{}, after
}

func (f *farm) CreateSnapshot(_ context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	id := f.next.String()
	if f.named[id] == "" {
		f.named[id] = req.GetName()
		text, err := os.ReadFile(f.file(req.GetSourceVolumeId()))
		require.NoError(f.t, errors.Join(err, os.WriteFile(f.file(id), text, 0o600)))
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{SnapshotId: id}}, after
}

func (f *farm) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	require.Empty(f.t, f.named[source.String()], "deleted while the temporary volume exists")
	delete(f.named, req.GetSnapshotId())
	require.NoError(f.t, os.Remove(f.file(req.GetSnapshotId())))
	return &csi.DeleteSnapshotResponse{}, after
}

func (f *farm) FindNamed(_ context.Context, _ request.VolumeID, snapshotName, volumeName string) (taken, volume string, err error) {
	if before, after := f.fails(); before != nil || after != nil {
		return "", "", errInjected
	}
	for id, name := range f.named {
		switch name {
		case snapshotName:
			taken = id
		case volumeName:
			volume = id
		}
	}
	return taken, volume, nil
}

func (f *farm) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	id := req.GetVolumeId()
	if node := f.node[id]; node != "" && node != req.GetNodeId() {
		return nil, fmt.Errorf("%w: node %s is using it", export.ErrInUse, node)
	}
	if method := req.GetVolumeContext()[hostauth.KeyMethod]; method != "" {
		if req.GetSecrets()[hostauth.SecretDHCHAPKey] == "" {
			return nil, hostauth.ErrMissing
		}
		f.authenticated = append(f.authenticated, id)
	}
	f.node[id] = req.GetNodeId()
	parsed, err := request.ParseVolumeID(id)
	require.NoError(f.t, err)
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{
		connect.KeyTargetType: "tcp", connect.KeyTargetAddr: "127.0.0.1", connect.KeyTargetPort: "4420", connect.KeyNQN: export.NQN(parsed.UUID), connect.KeyNSUUID: parsed.UUID,
		request.KeyMayFormat: fmt.Sprint(!f.used[id]), hostauth.KeyMethod: req.GetVolumeContext()[hostauth.KeyMethod],
	}}, after
}

func (f *farm) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	require.Zero(f.t, f.attached[req.GetVolumeId()], "unpublished while attached")
	if f.node[req.GetVolumeId()] == req.GetNodeId() {
		delete(f.node, req.GetVolumeId())
	}
	f.used[req.GetVolumeId()] = true
	return &csi.ControllerUnpublishVolumeResponse{}, after
}

func (f *farm) Inspect(_ context.Context, id request.VolumeID, nodeID string) (inventory.Inspected, error) {
	if before, after := f.fails(); before != nil || after != nil {
		return inventory.Inspected{}, errInjected
	}
	st, err := os.Stat(f.file(id.String()))
	if err != nil {
		return inventory.Inspected{}, err
	}
	at, is := f.node[id.String()], inventory.Inspected{SizeBytes: st.Size()}
	if uuid, ok := hostname.CopyOf(hostname.Of(at).NQN); ok && hostname.MoveNode(id.UUID, uuid) == at {
		is.CopyUUID = uuid
	}
	is.Published = at != "" && at == nodeID
	is.Others = at != "" && at != nodeID && is.CopyUUID == ""
	return is, nil
}

func (f *farm) Allocated(_ context.Context, id request.VolumeID, base string) (inventory.Allocation, error) {
	require.NotContains(f.t, []string{"", worker}, f.node[id.String()], "other nodes could write to it meanwhile")
	switch {
	case base != "" && f.changed != nil:
		return f.changed(id.String(), base)
	case base != "" || f.allocated == nil:
		return inventory.Allocation{}, errUnknown
	}
	return f.allocated(id.String())
}

func (f *farm) id(e connect.Export) string {
	for id := range f.node {
		if strings.HasSuffix(id, e.NSUUID) {
			return id
		}
	}
	return original.Target + ":" + e.NSUUID
}

func (f connector) Connect(_ context.Context, e connect.Export) (connect.Device, error) {
	before, after := f.fails()
	if before != nil || after != nil { // a failed Connect undoes its steps
		return connect.Device{}, errInjected
	}
	id := f.id(e)
	require.Equal(f.t, f.node, f.farm.node[id], "attached without being published to this node")
	require.NoError(f.t, e.CheckKeys())
	f.attached[id]++
	if f.connecting != nil {
		f.connecting(id)
	}
	return connect.Device{Path: f.file(id)}, nil
}

func (f connector) Disconnect(_ context.Context, e connect.Export) error {
	before, after := f.fails()
	if before != nil {
		return before
	}
	f.attached[f.id(e)] = 0
	return after
}

func (connector) Find(context.Context, connect.Export) (connect.Device, error) {
	return connect.Device{}, connect.ErrNotConnected
}

func (connector) Rescan(context.Context, connect.Export, int64) (int64, error) {
	return 0, connect.ErrNotConnected
}
