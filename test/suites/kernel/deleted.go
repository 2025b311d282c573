//go:build kernel

package kernel

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// driverTarget is a real SPDK target. The driver creates, exports and deletes its volumes.
type driverTarget struct {
	*volume.Service
	store   string
	clear   class.Clear
	volumes map[string]exported
}

type exported struct {
	uuid string
	host export.Host
}

// newDriverTarget creates a file-backed lvstore. SPDK's default clear method has no effect there.
func newDriverTarget(t *testing.T, path string, mode class.Clear) *driverTarget {
	socket := spdkrpc.NewSocket(path)
	rpc := spdkrpc.NewClient(socket)
	name := "kernel-test-" + rand.Text()[:8]
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 2*control.DeletedBytes))
	_, err := rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: name, Filename: file, BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	d := &driverTarget{store: name, clear: mode, volumes: map[string]exported{}}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for v := range maps.Keys(d.volumes) {
			assert.NoError(t, d.remove(ctx, v))
		}
		assert.NoError(t, rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &name}))
		assert.NoError(t, rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: name}))
		assert.NoError(t, socket.Close())
	})
	_, err = rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: name, LvsName: name, ClusterSz: new(uint32(control.ClusterBytes))})
	require.NoError(t, err)
	d.Service = volume.NewTarget(volume.Config{
		Config: export.Config{Name: "t1", Transport: export.TCP, Listen: []export.Portal{{Addr: "127.0.0.1", Port: freePort(t)}}}, Stores: []string{name},
	}).Service(rpc)
	return d
}

// do executes a call from the guest.
func (d *driverTarget) do(ctx context.Context, c control.TargetCall) (map[string]string, error) {
	switch c.Do {
	case control.Make:
		return d.make(ctx, c)
	case control.Remove:
		return nil, d.remove(ctx, c.Volume)
	}
	return nil, fmt.Errorf("unknown call %q", c.Do)
}

func (d *driverTarget) make(ctx context.Context, c control.TargetCall) (map[string]string, error) {
	stores, err := d.Stores(ctx)
	if err != nil {
		return nil, err
	}
	v, err := d.Create(ctx, stores[0], volume.Spec{Name: c.Volume, MinBytes: c.Bytes, Class: class.Class{Clear: d.clear}})
	if err != nil {
		return nil, err
	}
	e := exported{v.UUID, export.Host{NQN: c.HostNQN}}
	d.volumes[c.Volume] = e
	_, err = d.Export(ctx, v.UUID, e.host)
	return map[string]string{
		connect.KeyTargetType: "tcp", connect.KeyTargetAddr: control.Address, connect.KeyTargetPort: d.Listen[0].Port,
		connect.KeyNQN: export.NQN(v.UUID), connect.KeyNSUUID: v.UUID, connect.KeyLvolSize: fmt.Sprint(v.SizeBytes),
	}, err
}

func (d *driverTarget) remove(ctx context.Context, name string) error {
	e := d.volumes[name]
	if err := d.Unexport(ctx, e.uuid, &e.host); err != nil {
		return err
	}
	delete(d.volumes, name)
	return d.Delete(ctx, e.uuid)
}
