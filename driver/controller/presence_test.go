package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// addDisk creates an lvstore on a file, and returns functions that detach and attach the file's
// bdev.
func (s *simTarget) addDisk(t *testing.T, store string) (detach, attach func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), store)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, storeMiB*mib))
	attach = func() {
		_, err := s.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: "disk-" + store, Filename: file, BlockSize: new(uint32(4096))})
		require.NoError(t, err)
	}
	attach()
	_, err := s.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-" + store, LvsName: store})
	require.NoError(t, err)
	return func() {
		require.NoError(t, s.rpc.BdevAIODelete(t.Context(), spdkrpc.BdevAIODeleteParams{Name: "disk-" + store}))
	}, attach
}

func TestDetachedStoreIsUnavailable(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	detach, attach := target.addDisk(t, "lvs1")
	b := newTestController(t, target)
	assert.Contains(t, b.logs.String(), "lvstores is not configured")
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"lvstore": "lvs1"}
	created, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	v := created.GetVolume()

	detach()
	_, err = b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), "lvs1", "restore its base bdev")
	assert.Empty(t, target.lvols(t), "the volume is not created a second time")
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(b.delete(t.Context(), v.GetVolumeId())), "lvs1")
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), "lvs1")

	attach()
	again := b.create(t, "pvc-1", 4*mib)
	assert.Equal(t, v.GetVolumeId(), again.GetVolumeId())
	assert.Len(t, target.lvols(t), 1)
	for range 2 {
		require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
	}
	assert.Empty(t, target.lvols(t))
}

// CreateVolume calls every target. Even with a hundred targets and two credentials for each, the
// controller keeps all connections.
func TestClientsOfManyTargetsAreKept(t *testing.T) {
	var c config.Config
	var names []string
	for i := range 100 {
		name := fmt.Sprintf("t%d", i)
		names = append(names, name)
		c.Nodes = append(c.Nodes, config.Target{Name: name, RPCURL: "https://192.0.2.1"})
	}
	targets, err := newTargets(&c)
	require.NoError(t, err)
	t.Cleanup(targets.close)
	other := make(map[string]config.Credential, len(names))
	for _, n := range names {
		other[n] = config.Credential{Name: n, Token: "other"}
	}
	own, err := config.Credentials(secretsFor(names...), "", "")
	require.NoError(t, err)
	for _, tokens := range []map[string]config.Credential{own, other} {
		first, err := targets.openEach(targets.placement, tokens)
		require.NoError(t, err)
		for range 3 {
			_, err := targets.openEach(targets.placement, own)
			require.NoError(t, err)
			again, err := targets.openEach(targets.placement, tokens)
			require.NoError(t, err)
			for i := range first {
				require.Same(t, first[i], again[i], names[i])
			}
		}
	}
	assert.Len(t, targets.clients, 200)
}
