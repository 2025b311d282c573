package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A freezer simulates a proxy that supports spdkgate_lvol_snapshot and spdkgate_lvol_delete.
type freezer struct {
	spdkrpc.Caller
	requests []spdkrpc.ProxySnapshotRequest
	deleted  []string     // names that spdkgate_lvol_delete deleted
	fails    error        // the error that both methods return; nil for none
	barrier  *fakeBarrier // where calls on several targets wait
}

func (f *freezer) Call(ctx context.Context, method string, params, result any) error {
	if method == "spdkgate_lvol_delete" {
		if f.fails != nil {
			return f.fails
		}
		text, err := json.Marshal(params)
		if err != nil {
			return err
		}
		var p spdkrpc.SpdkgateLvolDeleteParams
		if err := json.Unmarshal(text, &p); err != nil {
			return err
		}
		f.deleted = append(f.deleted, p.Name)
		if d, ok := result.(*spdkrpc.ProxyDeletion); ok {
			*d = spdkrpc.ProxyDeletion{Frozen: true}
		}
		return f.Caller.Call(ctx, "bdev_lvol_delete", params, new(bool))
	}
	if method == "spdkgate_lvol_snapshot_barrier" {
		return f.passBarrier(ctx, params, result)
	}
	if method != "spdkgate_lvol_snapshot" {
		return f.Caller.Call(ctx, method, params, result)
	}
	if f.fails != nil {
		return f.fails
	}
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var p spdkrpc.SpdkgateLvolSnapshotParams
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	f.requests = append(f.requests, p.Snapshots...)
	if err := f.waitAt(ctx, p.Barrier); err != nil {
		return err
	}
	var taken []spdkrpc.ProxySnapshot
	for _, r := range p.Snapshots {
		var id string
		err := f.Caller.Call(ctx, "bdev_lvol_snapshot", map[string]string{"lvol_name": r.LvolName, "snapshot_name": r.SnapshotName}, &id)
		if err != nil {
			return f.undo(ctx, taken, err)
		}
		taken = append(taken, spdkrpc.ProxySnapshot{UUID: id, Frozen: true})
	}
	if list, ok := result.(*[]spdkrpc.ProxySnapshot); ok {
		*list = taken
	}
	return nil
}

// undo deletes the snapshots that a call has already taken, after a later snapshot in the same call
// has failed.
func (f *freezer) undo(ctx context.Context, taken []spdkrpc.ProxySnapshot, cause error) error {
	for _, s := range taken {
		if err := f.Caller.Call(ctx, "bdev_lvol_delete", map[string]string{"name": s.UUID}, new(bool)); err != nil {
			return &spdkrpc.Error{Method: "spdkgate_lvol_snapshot", Kind: spdkrpc.OutcomeUnknown, Err: err}
		}
	}
	return cause
}

// behindFreezer makes the service call the target through a proxy that can freeze I/O.
func behindFreezer(b *testService) *freezer {
	f := &freezer{Caller: b.fault}
	b.Service = b.Target.Service(spdkrpc.NewClient(f))
	return f
}

func TestSnapshotIsTakenDuringAFreeze(t *testing.T) {
	b := newTestService(t, export.TCP)
	f := behindFreezer(b)
	v := b.create(t, "pvc-1", 4)
	exported, err := b.Export(t.Context(), v.UUID, drivertest.MultipathHost("n1"))
	require.NoError(t, err)
	assert.True(t, exported.Multipath)
	_, err = b.Snapshot(t.Context(), "snap", v.UUID)
	require.NoError(t, err)
	_, err = b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.NoError(t, err)
	require.Len(t, f.requests, 2, "one for the snapshot, one for the base of the clone")
	for _, r := range f.requests {
		assert.Equal(t, v.UUID, r.LvolName)
		assert.Equal(t, export.NQN(v.UUID), *r.NQN)
	}
	f.fails = &spdkrpc.Error{Method: "spdkgate_lvol_snapshot", Kind: spdkrpc.InUse, Code: -32009}
	_, err = b.Snapshot(t.Context(), "another", v.UUID)
	require.ErrorIs(t, err, spdkrpc.InUse)
}

// With a proxy that cannot freeze I/O, no snapshot of an exported volume is taken.
func TestOldProxyDoesNotSnapshotExportedVolume(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			v := b.create(t, "pvc-1", 4)
			_, err := b.Snapshot(t.Context(), "unused", v.UUID)
			require.NoError(t, err)
			_, err = b.Export(t.Context(), v.UUID, drivertest.MultipathHost("n1"))
			require.NoError(t, err)
			before := b.state(t)
			_, err = b.Snapshot(t.Context(), "in use", v.UUID)
			require.ErrorIs(t, err, ErrInUse)
			assert.ErrorContains(t, err, "upgrade spdk-proxy")
			_, err = b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
			require.ErrorIs(t, err, ErrInUse)
			assert.Equal(t, before, b.state(t), "nothing changed")
		})
	}
}

// A host without multipath would fail its I/O instead of holding it back.
func TestSnapshotIsRefusedForHostsWithoutMultipath(t *testing.T) {
	b := newTestService(t, export.TCP)
	if b.sim == nil {
		t.Skip("needs a simulated target: in this test, no host connects to a real target")
	}
	f := behindFreezer(b)
	h := drivertest.MultipathHost("n1")
	v := b.create(t, "pvc-1", 4)
	_, err := b.Export(t.Context(), v.UUID, h)
	require.NoError(t, err)
	require.NoError(t, b.sim.ConnectHost(export.NQN(v.UUID), h.Multipath))
	_, err = b.Snapshot(t.Context(), "fine", v.UUID)
	require.NoError(t, err)
	require.NoError(t, b.sim.ConnectHost(export.NQN(v.UUID), h.NQN))
	_, err = b.Snapshot(t.Context(), "refused", v.UUID)
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "nvme_core.multipath=Y")
	_, err = b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "nvme_core.multipath=Y")
	assert.Len(t, f.requests, 1)
}

func TestLongChainsAreRefused(t *testing.T) {
	b := newTestService(t, export.TCP)
	if b.sim == nil {
		t.Skip("a real lvstore has metadata for about as many snapshots as it has clusters: here too few")
	}
	behindFreezer(b)
	v := b.create(t, "pvc-1", 4)
	for i := range maxDepth {
		_, err := b.Snapshot(t.Context(), fmt.Sprint("s", i), v.UUID)
		require.NoError(t, err)
	}
	_, err := b.Snapshot(t.Context(), "one more", v.UUID)
	require.ErrorIs(t, err, ErrTooDeep)
	_, err = b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
	require.ErrorIs(t, err, ErrTooDeep)
}
