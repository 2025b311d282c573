package volume

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestVolumeIsCreated(t *testing.T) {
	b := newTestService(t, export.TCP)
	st := b.store(t, "lvs0")
	for name, c := range map[string]struct {
		spec Spec
		size int64
		err  error
	}{
		"rounded up to the cluster":     {Spec{MinBytes: 5 * MiB}, 8 * MiB, nil},
		"one byte":                      {Spec{MinBytes: 1}, 4 * MiB, nil},
		"limit leaves no size":          {Spec{MinBytes: 5 * MiB, MaxBytes: 7 * MiB}, 0, ErrOutOfRange},
		"limit is the size":             {Spec{MinBytes: 5 * MiB, MaxBytes: 8 * MiB}, 8 * MiB, nil},
		"thin, of all free space":       {Spec{MinBytes: st.FreeBytes}, st.FreeBytes, nil},
		"thin, larger than the store":   {Spec{MinBytes: st.TotalBytes + 1}, 0, ErrNoSpace},
		"thick, larger than free space": {Spec{MinBytes: st.FreeBytes + 1, Class: class.Class{Thick: true}}, 0, ErrNoSpace},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Name = "pvc-" + uuid.NewString()
			v, err := b.Create(t.Context(), st, c.spec)
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				assert.Equal(t, c.size, v.SizeBytes)
				assert.Equal(t, !c.spec.Class.Thick, v.Thin)
				assert.Equal(t, c.spec.Name, v.Name, "the same name as in SPDK's spdk-csi")
				require.NoError(t, b.Delete(t.Context(), v.UUID))
			}
		})
	}
	assert.Empty(t, b.state(t).Lvols)
}

func TestCreateReportsFullStore(t *testing.T) {
	b := newTestService(t, export.TCP)
	before := b.store(t, "lvs0")
	_, err := b.Create(t.Context(), before, Spec{Name: "first", MinBytes: 100 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	// The outdated Store still shows enough free space, so SPDK refuses the volume. SPDK's error
	// code is the same for every failure.
	_, err = b.Create(t.Context(), before, Spec{Name: "second", MinBytes: 150 * MiB, Class: class.Class{Thick: true}})
	require.ErrorIs(t, err, ErrNoSpace)
}

// If the reply to a creation is lost, the error does not mention space, even if the lvstore is
// full, because the call may still be executed.
func TestLostCreationReplyDoesNotReportMissingSpace(t *testing.T) {
	b := newTestService(t, export.TCP)
	before := b.store(t, "lvs0")
	_, err := b.Create(t.Context(), before, Spec{Name: "first", MinBytes: 100 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	b.fault.FailCall(1, true, false)
	_, err = b.Create(t.Context(), before, Spec{Name: "second", MinBytes: 150 * MiB, Class: class.Class{Thick: true}})
	require.Equal(t, "bdev_lvol_create", b.fault.FailedMethod())
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	require.NotErrorIs(t, err, ErrNoSpace)

	b.fault.FailCall(2, true, false) // the first call reads the release
	v, err := b.Create(t.Context(), before, Spec{Name: "third", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.Equal(t, "bdev_lvol_create", b.fault.FailedMethod())
	require.NoError(t, err, "reading back shows that the call was executed")
	assert.False(t, v.Thin)
}

// deleting behaves like a target that is still clearing a deleted volume: the volume has no bdev,
// but its name is in use.
type deleting struct{ spdkrpc.Caller }

func (d deleting) Call(ctx context.Context, method string, params, result any) error {
	if method == "bdev_lvol_create" {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Exists, Code: -17, Message: "File exists"}
	}
	return d.Caller.Call(ctx, method, params, result)
}

func TestCreateFailsAsBusyWhileTheNameIsBeingDeleted(t *testing.T) {
	b := newTestService(t, export.TCP)
	s := NewTarget(b.Config).Service(spdkrpc.NewClient(deleting{b.fault}))
	_, err := s.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 4 * MiB})
	require.ErrorIs(t, err, ErrBusy)
}

// The driver can determine whether a volume was created thin or thick, even after a snapshot has
// made the volume thin.
func TestSnapshotsKeepVolumesThinOrThick(t *testing.T) {
	b := newTestService(t, export.TCP)
	st := b.store(t, "lvs0")
	for _, thick := range []bool{false, true} {
		t.Run(fmt.Sprint("thick=", thick), func(t *testing.T) {
			name := fmt.Sprint("pvc-", thick)
			spec, other := Spec{Name: name, MinBytes: 8 * MiB, Class: class.Class{Thick: thick}}, Spec{Name: name, MinBytes: 8 * MiB, Class: class.Class{Thick: !thick}}
			v, err := b.Create(t.Context(), st, spec)
			require.NoError(t, err)
			for _, snapshots := range []int{0, 1, 2} {
				if snapshots > 0 {
					_, err := b.Snapshot(t.Context(), fmt.Sprint(name, snapshots), v.UUID)
					require.NoError(t, err)
				}
				again, err := b.Create(t.Context(), st, spec)
				require.NoError(t, err, snapshots)
				assert.Equal(t, v.UUID, again.UUID)
				_, err = b.Create(t.Context(), st, other)
				require.ErrorIs(t, err, ErrIncompatible, snapshots)
				require.ErrorContains(t, err, "thin=")
			}
			// A clone is thin, even if its source is thick.
			clone := Spec{Name: name + "-clone", MinBytes: 8 * MiB, Class: b.cloneClass(t)}
			for range 2 {
				_, err = b.Clone(t.Context(), Origin{UUID: v.UUID}, clone)
				require.NoError(t, err)
			}
		})
	}
}

func TestRepeatedCreateReturnsTheVolume(t *testing.T) {
	b := newTestService(t, export.TCP)
	st := b.store(t, "lvs0")
	v := b.create(t, "pvc-1", 8)
	snap, err := b.Snapshot(t.Context(), "s", v.UUID)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		spec Spec
		err  error
	}{
		"same":           {Spec{MinBytes: 8 * MiB}, nil},
		"too small":      {Spec{MinBytes: 9 * MiB}, ErrIncompatible},
		"too large":      {Spec{MinBytes: 1, MaxBytes: 7 * MiB}, ErrIncompatible},
		"within a range": {Spec{MinBytes: 5 * MiB, MaxBytes: 10 * MiB}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Name = "pvc-1"
			again, err := b.Create(t.Context(), st, c.spec)
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				assert.Equal(t, v.UUID, again.UUID)
			}
		})
	}
	_, err = b.Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "pvc-1", MinBytes: 8 * MiB})
	require.ErrorIs(t, err, ErrIncompatible, "the volume with this name is not a copy of the snapshot")
}
