package volume

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// clearing simulates a target that clears the clusters of a deleted volume until finish is closed,
// as observed on v24.01 and v26.05. Until then, the volume is not listed and has no bdev, but its
// name is in use, and the target rejects a second deletion as an invalid argument.
type clearing struct {
	spdkrpc.Caller
	mu       sync.Mutex
	id, name string
	started  chan struct{}
	finish   chan struct{}
	deleted  int // number of calls to delete the volume
}

func (c *clearing) Call(ctx context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var p struct {
		Name     string `json:"name"`
		LvolName string `json:"lvol_name"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	c.mu.Lock()
	busy, first := c.deleted > 0, method == "bdev_lvol_delete" && p.Name == c.id && c.deleted == 0
	if method == "bdev_lvol_delete" && p.Name == c.id {
		c.deleted++
	}
	c.mu.Unlock()
	select {
	case <-c.finish:
		busy = false
	default:
	}
	switch {
	case first:
		close(c.started)
		<-c.finish
	case busy && method == "bdev_lvol_delete" && p.Name == c.id:
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Code: -32603, Message: "Invalid argument"}
	case busy && method == "bdev_lvol_create" && p.LvolName == c.name:
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Exists, Code: -17, Message: "File exists"}
	case busy && method == "bdev_get_bdevs" && (p.Name == c.id || filepath.Base(p.Name) == c.name):
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice, Code: -19, Message: "No such device"}
	case busy && method == "bdev_lvol_get_lvols":
		if err := c.Caller.Call(ctx, method, params, result); err != nil {
			return err
		}
		if list, ok := result.(*[]spdkrpc.LvolInfo); ok {
			*list = slices.DeleteFunc(*list, func(l spdkrpc.LvolInfo) bool { return l.UUID == c.id })
		}
		return nil
	}
	return c.Caller.Call(ctx, method, params, result)
}

// While SPDK is clearing the clusters of a deleted volume, a repeated deletion fails with a
// retryable error, regardless of whether the first caller is still waiting or has lost its reply.
// The repeated deletion succeeds once the first deletion is complete. Until then, no volume with
// the same name can be created.
func TestRepeatedDeletionFailsUntilTheFirstIsComplete(t *testing.T) {
	if os.Getenv("SPDK_SOCK") != "" {
		t.Skip("TestDeletionOnARealTargetCanBeRepeated tests this on real targets")
	}
	b := newTestService(t, export.TCP)
	spec := Spec{Name: "pvc-1", MinBytes: 8 * MiB, Class: class.Class{Thick: true}}
	st := b.store(t, "lvs0")
	v, err := b.Create(t.Context(), st, spec)
	require.NoError(t, err)
	c := &clearing{Caller: b.fault, id: v.UUID, name: v.Name, started: make(chan struct{}), finish: make(chan struct{})}
	config := b.Config
	config.Stores = []string{"lvs0", "lvs1"}
	lost := NewTarget(b.Config).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: c, Method: "bdev_lvol_delete", LoseReply: true}))
	all := []*Service{NewTarget(b.Config).Service(spdkrpc.NewClient(c)), NewTarget(config).Service(spdkrpc.NewClient(c))}
	first := make(chan error, 1)
	go func() { first <- all[0].Delete(context.WithoutCancel(t.Context()), v.UUID) }()
	<-c.started
	for _, s := range all {
		require.ErrorIs(t, s.Delete(t.Context(), v.UUID), ErrBusy)
		_, err = s.Create(t.Context(), st, spec)
		require.ErrorIs(t, err, ErrBusy)
	}
	require.ErrorIs(t, lost.remove(t.Context(), v), ErrBusy, "the reply was lost")
	close(c.finish)
	require.NoError(t, <-first)
	for _, s := range all {
		require.NoError(t, s.Delete(t.Context(), v.UUID))
	}
	assert.Empty(t, b.state(t).Lvols)
}

// A volume in an lvstore that the driver must not use is not deleted, even if only confirmDeleted
// finds it.
func TestVolumeInForbiddenStoreIsNotDeleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 8 * MiB})
	require.NoError(t, err)
	config := b.Config
	config.Stores = []string{"lvs1"}
	require.ErrorIs(t, NewTarget(config).Service(b.rpc).confirmDeleted(t.Context(), v.UUID), ErrStoreForbidden)
	_, err = b.GetVolume(t.Context(), v.UUID)
	require.NoError(t, err)
}

// TestDeletionOnARealTargetCanBeRepeated repeats TestRepeatedDeletionFailsUntilTheFirstIsComplete
// on a real target, with a volume that takes seconds to clear.
func TestDeletionOnARealTargetCanBeRepeated(t *testing.T) {
	if os.Getenv("SPDK_SOCK") == "" {
		t.Skip("the simulated target deletes immediately; set SPDK_SOCK to run on a real one")
	}
	const mib = 4096
	b := newTestService(t, export.TCP)
	if release, err := b.rpc.Release(t.Context()); err == nil && release.Before(rpcschema.MustRelease("v24.09")) {
		t.Skip("before v24.09, bdev_lvol_get_lvols crashes the target while a volume is being deleted, and only spdk-proxy keeps them apart")
	}
	file := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, (mib+256)*MiB))
	_, err := b.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: "disk-large", Filename: file, BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { assert.NoError(t, b.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: "disk-large"})) })
	_, err = b.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-large", LvsName: "large"})
	require.NoError(t, err)
	spec := Spec{Name: "pvc-1", MinBytes: mib * MiB, Class: class.Class{Thick: true}}
	st := b.store(t, "large")
	v, err := b.Create(t.Context(), st, spec)
	require.NoError(t, err)

	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- b.Delete(ctx, v.UUID) }()
	require.Eventually(t, func() bool { _, err := b.Get(ctx, v.UUID); return errors.Is(err, ErrNotFound) }, time.Minute, 20*time.Millisecond)
	busy := 0
	for {
		err := b.Delete(ctx, v.UUID)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, ErrBusy)
		busy++
		time.Sleep(200 * time.Millisecond)
	}
	took := time.Since(start)
	require.NoError(t, <-done)
	assert.Positive(t, busy, "the deletion was too fast for this test")
	after := b.store(t, "large")
	assert.Equal(t, after.TotalBytes, after.FreeBytes, "all space is free when a repeated deletion succeeds")
	t.Logf("%d MiB took %v, %d repeated deletions were told to try again", mib, took, busy)
}
