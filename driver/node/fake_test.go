package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

const nodeA = "node-a"

var writer = drivertest.Writer()

// A fakeNode replaces the packages that the node service calls. It connects and mounts volumes in
// memory, fails the steps chosen by a test, and records the service's requests.
type fakeNode struct {
	t         *testing.T
	staging   string
	state     string
	connected map[string]bool
	mounts    map[string]mount.Point
	fail      map[string]error // errors, by the name of the step
	log       []string
	stage     mount.Stage // argument of the last FormatAndMount
}

func newFakeNode(t *testing.T) (*Node, *fakeNode) {
	f := &fakeNode{t: t, staging: t.TempDir(), state: t.TempDir(), connected: map[string]bool{}, mounts: map[string]mount.Point{}, fail: map[string]error{}}
	return f.node(), f
}

// node returns the service of a new process on the same machine.
func (f *fakeNode) node() *Node {
	n, err := New(nodeA, 7, f.state, f, f, slog.New(slog.DiscardHandler))
	require.NoError(f.t, err)
	return n
}

func (f *fakeNode) step(name string) error {
	f.log = append(f.log, name)
	return f.fail[name]
}

func (f *fakeNode) Connect(_ context.Context, e connect.Export) (connect.Device, error) {
	if _, err := os.Stat(filepath.Join(f.staging, recordName)); err != nil {
		f.t.Errorf("connected before the record was written: %v", err)
	}
	if err := e.CheckKeys(); err != nil {
		return connect.Device{}, err
	}
	if err := f.step("connect"); err != nil {
		return connect.Device{}, err
	}
	f.connected[e.Target()] = true
	return connect.Device{Path: "/dev/" + e.NSUUID}, nil
}

func (f *fakeNode) Find(_ context.Context, e connect.Export) (connect.Device, error) {
	if !f.connected[e.Target()] {
		return connect.Device{}, connect.ErrNotConnected
	}
	return connect.Device{Path: "/dev/" + e.NSUUID}, nil
}

func (f *fakeNode) Disconnect(_ context.Context, e connect.Export) error {
	if err := f.step("disconnect"); err != nil {
		return err
	}
	delete(f.connected, e.Target())
	return nil
}

func (f *fakeNode) Rescan(_ context.Context, _ connect.Export, want int64) (int64, error) {
	return want, f.step(fmt.Sprintf("rescan %d", want))
}

func (f *fakeNode) FormatAndMount(_ context.Context, s mount.Stage) error {
	f.stage = s
	if err := f.step("mount"); err != nil {
		return err
	}
	f.mounts[s.Path] = mount.Point{Path: s.Path, Device: s.Device, ReadOnly: s.ReadOnly}
	return f.fail["grow after mount"]
}

func (f *fakeNode) Bind(_ context.Context, source, target string, readOnly bool, flags []string) error {
	if err := f.step("bind"); err != nil {
		return err
	}
	f.mounts[target] = mount.Point{Path: target, Device: f.mounts[source].Device, ReadOnly: readOnly}
	return nil
}

func (f *fakeNode) BindDevice(_ context.Context, device, target string, readOnly bool) error {
	if err := f.step("bind device"); err != nil {
		return err
	}
	f.mounts[target] = mount.Point{Path: target, Device: device, ReadOnly: readOnly, Block: true}
	return nil
}

func (f *fakeNode) Unmount(_ context.Context, path string) error {
	if err := f.step("unmount"); err != nil {
		return err
	}
	delete(f.mounts, path)
	return nil
}

func (f *fakeNode) UnmountAndRemove(ctx context.Context, path string) error {
	return f.Unmount(ctx, path)
}

func (f *fakeNode) At(path string) (mount.Point, error) {
	p, ok := f.mounts[path]
	if !ok {
		return p, mount.ErrNotMounted
	}
	return p, nil
}

func (f *fakeNode) Check(_ context.Context, path string) error {
	switch p, ok := f.mounts[path]; {
	case !ok:
		return mount.ErrNotMounted
	case p.Stale:
		return mount.ErrBroken
	}
	return f.fail["check"]
}

func (f *fakeNode) Grow(context.Context, string) (int64, error) { return 42, f.step("grow") }

func (f *fakeNode) Stats(context.Context, string) (mount.Stats, error) {
	return mount.Stats{TotalBytes: 10, UsedBytes: 4, AvailableBytes: 6, TotalInodes: 3, UsedInodes: 1, FreeInodes: 2}, f.fail["stats"]
}

func (f *fakeNode) DeviceSize(context.Context, string) (int64, error) { return 4096, f.fail["stats"] }

const (
	lvolUUID = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	volID    = "t0:" + lvolUUID
)

func (f *fakeNode) stageRequest(c *csi.VolumeCapability) *csi.NodeStageVolumeRequest {
	published := map[string]string{
		"targetType": "TCP", "targetAddr": "192.0.2.1", "targetPort": "4420", "nqn": export.NQN(lvolUUID), "nsUUID": lvolUUID, request.KeyMayFormat: "true",
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId: volID, StagingTargetPath: f.staging, VolumeCapability: c, PublishContext: published,
		VolumeContext: map[string]string{request.KeyMayFormat: "true", request.KeyFSType: "xfs", "targetAddr": "192.0.2.99"},
	}
}

func (f *fakeNode) unstageRequest() *csi.NodeUnstageVolumeRequest {
	return &csi.NodeUnstageVolumeRequest{VolumeId: volID, StagingTargetPath: f.staging}
}

func (f *fakeNode) publishRequest(c *csi.VolumeCapability, target string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{VolumeId: volID, StagingTargetPath: f.staging, TargetPath: target, VolumeCapability: c, VolumeContext: map[string]string{request.KeyFSType: "xfs"}}
}

func (f *fakeNode) hasRecord() bool {
	_, err := os.Stat(filepath.Join(f.staging, recordName))
	return err == nil
}
