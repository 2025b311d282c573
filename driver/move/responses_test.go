package move

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// A liar changes responses of a farm's controller.
type liar struct {
	*farm
	volume   func(v *csi.Volume)
	snapshot func(s *csi.Snapshot)
	publish  func(published map[string]string)
}

func (l liar) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	resp, err := l.farm.CreateVolume(ctx, req)
	if err == nil && l.volume != nil {
		l.volume(resp.GetVolume())
	}
	return resp, err
}

func (l liar) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	resp, err := l.farm.CreateSnapshot(ctx, req)
	if err == nil && l.snapshot != nil {
		l.snapshot(resp.GetSnapshot())
	}
	return resp, err
}

func (l liar) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	resp, err := l.farm.ControllerPublishVolume(ctx, req)
	if err == nil && l.publish != nil {
		l.publish(resp.GetPublishContext())
	}
	return resp, err
}

// A pathChanger is a connector that returns devices at other paths.
type pathChanger struct {
	connect.Connector
	path func(string) string
}

func (p pathChanger) Connect(ctx context.Context, e connect.Export) (connect.Device, error) {
	d, err := p.Connector.Connect(ctx, e)
	d.Path = p.path(d.Path)
	return d, err
}

// If the controller or the connector returns an unusable response, the move or the preparation
// fails. The original keeps its data, no device remains attached, and the repeated command
// succeeds.
func TestUnusableResponsesFailTheCommand(t *testing.T) {
	temporary := func(v *csi.Volume) bool { return v.GetVolumeId() == source.String() }
	broken := errors.New("no connector")
	for name, c := range map[string]struct {
		lie       liar
		connector func(node string, c connect.Connector) (connect.Connector, error)
		prepares  bool // whether only Prepare needs the response
		copies    bool // whether only Copy needs the response
		says      string
	}{
		"id of the copy": {lie: liar{volume: func(v *csi.Volume) { v.VolumeId = "nope" }}, copies: true, says: "nope"},
		"id of the temporary volume": {lie: liar{volume: func(v *csi.Volume) {
			if temporary(v) {
				v.VolumeId = "nope"
			}
		}}, prepares: true, says: "nope"},
		"size of the temporary volume": {lie: liar{volume: func(v *csi.Volume) {
			if temporary(v) {
				v.CapacityBytes++
			}
		}}, prepares: true, says: "disconnect both and repeat"},
		"id of the snapshot": {lie: liar{snapshot: func(s *csi.Snapshot) { s.SnapshotId = "nope" }}, prepares: true, says: "nope"},
		"publish context":    {lie: liar{publish: func(m map[string]string) { delete(m, connect.KeyTargetAddr) }}, says: connect.KeyTargetAddr},
		"connector":          {connector: func(string, connect.Connector) (connect.Connector, error) { return nil, broken }, says: broken.Error()},
		"device": {connector: func(_ string, c connect.Connector) (connect.Connector, error) {
			return pathChanger{c, func(path string) string { return path + "-missing" }}, nil
		}, says: "-missing"},
		"device of the temporary volume": {connector: func(_ string, c connect.Connector) (connect.Connector, error) {
			return pathChanger{c, func(path string) string {
				if filepath.Base(path) == source.String() {
					path += "-missing"
				}
				return path
			}}, nil
		}, prepares: true, says: "-missing"},
	} {
		for _, prepare := range []bool{false, true} {
			if c.prepares && !prepare || c.copies && prepare {
				continue
			}
			f := preparable(t)
			want := f.contents(original)
			if !prepare {
				delete(f.node, original.String())
			}
			m := f.mover()
			run := func() (Result, error) {
				if prepare {
					return m.Prepare(t.Context(), original, nil, nil)
				}
				return m.Copy(t.Context(), original, nil, nil)
			}
			honest := m
			c.lie.farm = f
			m.Controller = c.lie
			if c.connector != nil {
				m.Connector = func(node string) (connect.Connector, error) { return c.connector(node, connector{f, node}) }
			}
			r, err := run()
			require.ErrorContains(t, err, c.says, "%s, %v", name, prepare)
			assert.Zero(t, r, name)
			for id, n := range f.attached {
				assert.Zero(t, n, "%s: %s is still attached", name, id)
			}
			assert.True(t, bytes.Equal(want, f.contents(original)), name)
			m = honest
			_, err = run()
			require.NoError(t, err, "%s, %v", name, prepare)
		}
	}
}

// Keep fails if it cannot look up the objects that Prepare created, and succeeds if there are none.
func TestUnknownLeftoversAreReported(t *testing.T) {
	f := preparable(t)
	f.failAt = 1
	require.ErrorIs(t, f.mover().discard(t.Context(), original), errInjected)
	require.NoError(t, f.mover().discard(t.Context(), original))
}
