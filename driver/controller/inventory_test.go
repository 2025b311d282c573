package controller

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestInventoryContainsOnlyTheNamedSnapshots(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	id := b.snapshot(t, "snap-1", v).GetSnapshotId()
	b.snapshot(t, "snap-2", v)
	_, err := b.InventoryOfSnapshots(t.Context(), []string{id}, time.Minute)
	require.ErrorContains(t, err, config.CredentialsEnv)
	b.withCredentials(t)
	all, err := b.InventoryOfSnapshots(t.Context(), []string{id}, time.Minute)
	require.NoError(t, err)
	require.Len(t, all.Targets, 1)
	require.Len(t, all.Targets[0].Snapshots, 1)
	assert.Equal(t, id, all.Targets[0].Snapshots[0].ID)
	for _, unknown := range []string{"", "other-" + id} {
		_, err = b.InventoryOfSnapshots(t.Context(), []string{unknown}, time.Minute)
		require.Error(t, err, unknown)
	}
}

// The inventory lists a volume without a bdev, such as a clone of a missing external snapshot, with
// the reason.
func TestInventoryReportsVolumesWithoutBdev(t *testing.T) {
	sim := newSimTarget(t, "t0")
	disk := func(name string) spdkrpc.BdevAIOCreateParams {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, 64*mib))
		return spdkrpc.BdevAIOCreateParams{Name: name, Filename: path, BlockSize: new(uint32(4096))}
	}
	attach := func(p spdkrpc.BdevAIOCreateParams) {
		_, err := sim.rpc.BdevAIOCreate(t.Context(), p)
		require.NoError(t, err)
		require.NoError(t, sim.rpc.BdevWaitForExamine(t.Context()))
	}
	store, external := disk("disk"), disk("external")
	attach(store)
	attach(external)
	_, err := sim.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"})
	require.NoError(t, err)
	infos, err := sim.rpc.BdevGetBdevs(t.Context(), spdkrpc.BdevGetBdevsParams{Name: new("external")})
	require.NoError(t, err)
	_, err = sim.rpc.BdevLvolCloneBdev(t.Context(), spdkrpc.BdevLvolCloneBdevParams{Bdev: infos[0].UUID, LvsName: "lvs0", CloneName: "clone"})
	require.NoError(t, err)
	b := newTestController(t, sim)
	b.withCredentials(t)
	b.create(t, "pvc-1", 4*mib)
	read := func() (conditions map[string][]string) {
		all, err := b.Inventory(t.Context(), nil, time.Minute)
		require.NoError(t, err)
		require.Empty(t, all.Targets[0].Error)
		conditions = map[string][]string{}
		for _, v := range all.Targets[0].Volumes {
			conditions[v.Name] = v.Conditions
		}
		return conditions
	}
	assert.Equal(t, map[string][]string{"clone": nil, "pvc-1": nil}, read())
	for _, name := range []string{"disk", "external"} {
		require.NoError(t, sim.rpc.BdevAIODelete(t.Context(), spdkrpc.BdevAIODeleteParams{Name: name}))
	}
	attach(store)
	got := read()
	require.Len(t, got["clone"], 1)
	assert.Contains(t, got["clone"][0], "VolumeNotLoaded: ")
	assert.Empty(t, got["pvc-1"])
}
