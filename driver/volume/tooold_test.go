package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// On releases before v24.05, reading a volume beyond the end of its parent fails with I/O errors.
func TestOldReleasesRefuseVolumesLargerThanTheirParent(t *testing.T) {
	for _, simulated := range []string{"v24.01", "v24.05"} {
		t.Run(simulated, func(t *testing.T) {
			b := newTestServiceOf(t, export.TCP, rpcschema.MustRelease(simulated))
			release, err := b.rpc.Release(t.Context()) // a real target has its own release
			require.NoError(t, err)
			can := !release.Before(rpcschema.MustRelease("v24.05"))
			allowed := func(err error) {
				t.Helper()
				if can {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, ErrTooOld)
				assert.ErrorContains(t, err, "v24.05")
			}
			v := b.create(t, "pvc-1", 4)
			snap, err := b.Snapshot(t.Context(), "snap", v.UUID)
			require.NoError(t, err)
			before := b.state(t)
			_, err = b.Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "larger", MinBytes: 8 * MiB, Class: b.cloneClass(t)})
			allowed(err)
			_, err = b.Expand(t.Context(), v.UUID, 8*MiB, 0)
			allowed(err)
			if !can {
				assert.Equal(t, before, b.state(t), "nothing was changed")
			}
			_, err = b.Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "same", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
			require.NoError(t, err)
			alone := b.create(t, "pvc-2", 4)
			_, err = b.Expand(t.Context(), alone.UUID, 8*MiB, 0)
			require.NoError(t, err, "a volume without a parent")
		})
	}
}
