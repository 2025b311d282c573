//go:build kernel

package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	csiconfig "github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// csiTarget is a real SPDK target behind spdk-proxy. spdk-csi's controller creates, exports and
// deletes the volumes, in response to the same CSI calls that Kubernetes' sidecars make.
type csiTarget struct {
	*controller.Controller
	// the release can copy only volumes whose freed space need not be zeroed, and only at the same
	// size
	old       bool
	config    []byte // config.json
	secret    string // secret.json
	volumes   map[string]*csi.Volume
	snapshots map[string]string // ids by name
}

const (
	csiTargetName  = "t0"
	csiStore       = "kernel-test"
	proxyConfigFmt = `listen: 127.0.0.1:%s
tls: {self_signed_dir: %q}
target: {socket: %q, accept_loading_what_hosts_write: true, keys: {dir: %q}, freeze: {dir: %q}%s}
users:
  - {name: csi, password_hash: %q, roles: [csi-controller]}
log: {level: error}
`
)

// A csiServer is a target with a file-backed lvstore, behind its own proxy.
type csiServer struct {
	// node and token are the server's parts of config.json and secret.json.
	node, token map[string]any
	old         bool // see csiTarget
}

// newCSIServer creates a file-backed lvstore on a target, and starts a proxy. targetType is a
// target type in config.json. If savedDir is not empty, the proxy saves the target's configuration
// there, and the target ends with the test; otherwise the test removes what it created. The driver
// may also use otherStores, if the target has them.
func newCSIServer(t *testing.T, server, path, targetType, savedDir string, otherStores ...string) csiServer {
	socket := spdkrpc.NewSocket(path)
	rpc := spdkrpc.NewClient(socket)
	name, dir := csiStore, t.TempDir()
	file := filepath.Join(dir, "disk")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 8192*mib))
	_, err := rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: name, Filename: file, BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	t.Cleanup(func() {
		if savedDir != "" {
			assert.NoError(t, socket.Close())
			return
		}
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &name}))
		assert.NoError(t, rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: name}))
		assert.NoError(t, socket.Close())
	})
	release, err := rpc.Release(t.Context())
	require.NoError(t, err)
	_, err = rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: name, LvsName: name, ClusterSz: new(uint32(mib))})
	require.NoError(t, err)

	port := freePort(t)
	hash, err := bcrypt.GenerateFromPassword([]byte("not a secret"), bcrypt.MinCost)
	require.NoError(t, err)
	save := ""
	if savedDir != "" {
		save = fmt.Sprintf(", save: {dir: %q}", savedDir)
	}
	serveProxy(t, dir, fmt.Sprintf(proxyConfigFmt, port, filepath.Join(dir, "tls"), path, filepath.Join(dir, "keys"), filepath.Join(dir, "freeze"), save, hash))
	return csiServer{
		node: map[string]any{
			"name": server, "rpcURL": "https://127.0.0.1:" + port + "/", "caFile": filepath.Join(dir, "tls", "tls.crt"),
			"targetType": targetType, "targetAddr": "127.0.0.1", "targetPort": freePort(t), "lvstores": append([]string{name}, otherStores...),
		},
		token: map[string]any{"name": server, "username": "csi", "password": "not a secret"},
		old:   !release.Has(rpcschema.SetsParent) || !release.Has(rpcschema.GrowsBeyondParent),
	}
}

// newCSITarget prepares a target as newCSIServer does, and starts a controller.
func newCSITarget(t *testing.T, path, targetType, savedDir string, otherStores ...string) *csiTarget {
	return newCSITargets(t, newCSIServer(t, csiTargetName, path, targetType, savedDir, otherStores...))
}

// newCSITargets starts a controller for several targets.
func newCSITargets(t *testing.T, servers ...csiServer) *csiTarget {
	c := &csiTarget{volumes: map[string]*csi.Volume{}, snapshots: map[string]string{}}
	var nodes, tokens []any
	for _, s := range servers {
		c.old = c.old || s.old
		nodes, tokens = append(nodes, s.node), append(tokens, s.token)
	}
	var err error
	c.config, err = json.Marshal(map[string]any{"nodes": nodes, "placement": map[string]any{"targetTimeout": "1m"}})
	require.NoError(t, err)
	parsed, err := csiconfig.Parse(c.config)
	require.NoError(t, err)
	secrets, err := json.Marshal(map[string]any{"rpcTokens": tokens})
	require.NoError(t, err)
	c.secret = string(secrets)
	secret := filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(secret, secrets, 0o600))
	c.Controller, err = controller.New(parsed, secret, testLog(t))
	require.NoError(t, err)
	t.Cleanup(func() { // while the proxy is still serving
		ctx := context.WithoutCancel(t.Context())
		for v := range maps.Clone(c.volumes) {
			assert.NoError(t, c.remove(ctx, v))
		}
		for s := range maps.Clone(c.snapshots) {
			assert.NoError(t, c.removeSnapshot(ctx, s))
		}
		c.Close()
	})
	return c
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// serveProxy starts a proxy with a configuration, until the test ends.
func serveProxy(t *testing.T, dir, text string) {
	file := filepath.Join(dir, "spdk-proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	loaded, err := config.Load(file)
	require.NoError(t, err)
	server, err := proxy.NewServer(loaded, proxy.Options{Log: testLog(t)})
	require.NoError(t, err)
	l, err := server.Listen()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
}

// do executes a call from the guest.
func (c *csiTarget) do(ctx context.Context, call control.TargetCall) (map[string]string, error) {
	switch call.Do {
	case control.Make:
		return c.make(ctx, call)
	case control.Resize:
		_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: c.volumes[call.Volume].GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: call.Bytes},
		})
		return nil, err
	case control.Remove:
		return nil, c.remove(ctx, call.Volume)
	case control.Publish:
		return c.publish(ctx, call)
	case control.Snapshot:
		r, err := c.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: call.Snapshot, SourceVolumeId: c.volumes[call.Volume].GetVolumeId()})
		if err == nil {
			c.snapshots[call.Snapshot] = r.GetSnapshot().GetSnapshotId()
		}
		return nil, err
	case control.RemoveSnapshot:
		return nil, c.removeSnapshot(ctx, call.Snapshot)
	}
	return nil, fmt.Errorf("unknown call %q", call.Do)
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

// make creates or copies a volume, and publishes the volume to the guest's node.
func (c *csiTarget) make(ctx context.Context, call control.TargetCall) (map[string]string, error) {
	req := &csi.CreateVolumeRequest{
		Name: call.Volume, CapacityRange: &csi.CapacityRange{RequiredBytes: call.Bytes}, Parameters: call.Parameters,
		VolumeCapabilities: []*csi.VolumeCapability{capability()},
	}
	if c.old && (call.Snapshot != "" || call.From != "" || strings.HasPrefix(call.Volume, control.OriginPrefix)) {
		req.Parameters = maps.Clone(call.Parameters)
		if req.Parameters == nil {
			req.Parameters = map[string]string{}
		}
		req.Parameters["clearMethod"] = "unmap-may-expose-deleted-data"
	}
	switch {
	case call.Snapshot != "":
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: c.snapshots[call.Snapshot]}}}
	case call.From != "":
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: c.volumes[call.From].GetVolumeId()}}}
	}
	if call.Replicated {
		req.Parameters = map[string]string{"replicas": "2"}
		maps.Copy(req.Parameters, call.Parameters)
	}
	r, err := c.CreateVolume(ctx, req)
	if err != nil {
		return nil, err
	}
	c.volumes[call.Volume] = r.GetVolume()
	return c.publish(ctx, call)
}

// publish publishes a volume to a node, and returns the volume context and the publish context in
// the form that the guest needs.
func (c *csiTarget) publish(ctx context.Context, call control.TargetCall) (map[string]string, error) {
	v := c.volumes[call.Volume]
	p, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: v.GetVolumeId(), NodeId: call.Node, VolumeCapability: capability(), VolumeContext: v.GetVolumeContext(), Secrets: call.Secrets,
	})
	if err != nil {
		return nil, err
	}
	m := maps.Clone(v.GetVolumeContext())
	maps.Copy(m, p.GetPublishContext())
	if v.GetVolumeContext()[request.KeyMayFormat] == "false" {
		m[request.KeyMayFormat] = "false"
	}
	if r, ok := m[request.KeyReplicated]; ok {
		m[request.KeyReplicated] = strings.ReplaceAll(r, "127.0.0.1", control.Address)
		return m, nil
	}
	m[connect.KeyTargetAddr] = control.Address
	if list, ok := m[connect.KeyTargetAddrs]; ok {
		m[connect.KeyTargetAddrs] = strings.ReplaceAll(list, "127.0.0.1", control.Address)
	}
	return m, nil
}

// detach unpublishes a volume from all nodes, as Kubernetes does some time after it has lost a
// node.
func (c *csiTarget) detach(ctx context.Context, volume string) error {
	_, err := c.ControllerUnpublishVolume(ctx, unpublishRequest(c.volumes[volume].GetVolumeId(), ""))
	return err
}

func unpublishRequest(id, node string) *csi.ControllerUnpublishVolumeRequest {
	return &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node}
}

func (c *csiTarget) remove(ctx context.Context, volume string) error {
	v, ok := c.volumes[volume]
	if !ok {
		return fmt.Errorf("no volume %s", volume)
	}
	_, err := c.ControllerUnpublishVolume(ctx, unpublishRequest(v.GetVolumeId(), ""))
	_, deleteErr := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
	delete(c.volumes, volume)
	return errors.Join(err, deleteErr)
}

func (c *csiTarget) removeSnapshot(ctx context.Context, name string) error {
	_, err := c.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: c.snapshots[name]})
	delete(c.snapshots, name)
	return err
}
