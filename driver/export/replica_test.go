package export_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// replicaExports returns the subsystems that export a replica, with their hosts.
func (f *fixture) replicaExports(t *testing.T, id string) map[string][]string {
	t.Helper()
	subs, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	found := map[string][]string{}
	for _, sub := range subs {
		for _, ns := range sub.Namespaces {
			if ns.BdevName == id {
				hosts := []string{}
				for _, h := range sub.Hosts {
					hosts = append(hosts, h.NQN)
				}
				found[sub.NQN] = hosts
				assert.False(t, sub.AllowAnyHost)
			}
		}
	}
	return found
}

// A replica is exported only to the node of the newest publication, through a subsystem of that
// publication.
func TestReplicaIsExportedToOnePublication(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		t.Run(release, func(t *testing.T) {
			f := newFixture(t, export.TCP, release)
			ctx, id := t.Context(), f.bdev(t)
			one, two := drivertest.Host("n1"), drivertest.Host("n2")
			require.NoError(t, f.WithdrawReplica(ctx, id), "there is none")
			for range 2 {
				require.NoError(t, f.AdmitReplica(ctx, id, 1, one, mayExport))
			}
			assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 1): {one.NQN}}, f.replicaExports(t, id))
			require.NoError(t, f.AdmitReplica(ctx, id, 2, two, mayExport))
			assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 2): {two.NQN}}, f.replicaExports(t, id))

			// Another host, which was added to the publication's subsystem without being published,
			// is removed.
			require.NoError(t, f.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: export.ReplicaNQN(id, 2), Host: one.NQN}))
			require.NoError(t, f.AdmitReplica(ctx, id, 2, two, mayExport))
			assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 2): {two.NQN}}, f.replicaExports(t, id))
			for range 2 {
				require.NoError(t, f.WithdrawReplica(ctx, id))
			}
			assert.Empty(t, f.replicaExports(t, id))
		})
	}
}

// A delayed call does not admit the host of an earlier publication.
func TestDelayedPublicationIsNotAdmitted(t *testing.T) {
	f := newFixture(t, export.TCP, "v26.05")
	ctx, id := t.Context(), f.bdev(t)
	over := errors.New("there is a later publication")
	err := f.AdmitReplica(ctx, id, 1, drivertest.Host("n1"), func(ctx context.Context) error {
		assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 1): {}}, f.replicaExports(t, id), "the host is admitted last")
		return over
	})
	require.ErrorIs(t, err, over)
	assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 1): {}}, f.replicaExports(t, id))

	// A later publication overtakes this call after its check.
	err = f.AdmitReplica(ctx, id, 1, drivertest.Host("n1"), func(ctx context.Context) error {
		return f.AdmitReplica(ctx, id, 2, drivertest.Host("n2"), mayExport)
	})
	require.Error(t, err)
	assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 2): {drivertest.Host("n2").NQN}}, f.replicaExports(t, id))
}

func TestInvalidReplicaExportsAreRefused(t *testing.T) {
	f := newFixture(t, export.TCP, "v26.05")
	ctx, id, h := t.Context(), f.bdev(t), drivertest.Host("n1")
	require.NoError(t, admit(ctx, f.Service, id, drivertest.Host("n2")))
	before := f.replicaExports(t, id)
	require.ErrorIs(t, f.AdmitReplica(ctx, id, 1, h, mayExport), export.ErrForeign)
	require.ErrorIs(t, f.WithdrawReplica(ctx, id), export.ErrForeign)
	assert.Equal(t, before, f.replicaExports(t, id), "something else exports the lvol")
	require.NoError(t, f.Withdraw(ctx, id, nil))

	require.NoError(t, f.AdmitReplica(ctx, id, 1, h, mayExport))
	_, err := f.Fence(ctx, h, "n1", false)
	require.NoError(t, err)
	assert.Empty(t, f.replicaExports(t, id)[export.ReplicaNQN(id, 1)], "a fence removes the node from replicas as well")
	require.ErrorIs(t, f.AdmitReplica(ctx, id, 1, h, mayExport), export.ErrFenced)
	require.ErrorIs(t, f.AdmitReplica(ctx, id, 2, h, mayExport), export.ErrFenced)

	overISCSI := newFixture(t, export.ISCSI, "v26.05")
	require.ErrorIs(t, overISCSI.AdmitReplica(ctx, id, 1, h, mayExport), export.ErrNotReplicable)
}

// Regardless of which call fails, the node is the only admitted host after the publication is
// repeated.
func TestReplicaExportCanBeRepeated(t *testing.T) {
	for _, executed := range []bool{true, false} {
		for n := 1; ; n++ {
			f := newFixture(t, export.TCP, "v26.05")
			ctx, id, h := t.Context(), f.bdev(t), drivertest.Host("n2")
			require.NoError(t, f.AdmitReplica(ctx, id, 1, drivertest.Host("n1"), mayExport))
			f.fault.FailCall(n, executed, true)
			err := f.AdmitReplica(ctx, id, 2, h, mayExport)
			failed := f.fault.FailedMethod()
			f.fault.Reset()
			if failed == "" {
				require.NoError(t, err)
				break
			}
			require.Error(t, err, failed)
			require.NoError(t, f.AdmitReplica(ctx, id, 2, h, mayExport), failed)
			assert.Equal(t, map[string][]string{export.ReplicaNQN(id, 2): {h.NQN}}, f.replicaExports(t, id), failed)
		}
	}
}
