package mount

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A device that several nodes may mount is never written to, not even to replay its journal.
func TestSharedDeviceIsNotWritten(t *testing.T) {
	for fsType, asItIs := range map[string]string{ext4: "noload", xfs: "norecovery"} {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path := mountPoint(t, m, "staging")
			require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, FSType: fsType, MayFormat: true}))
			writeFile(t, path, "file", "precious")
			command(t, "sync", "-f", path)
			image := filepath.Join(t.TempDir(), "copy") // like a snapshot of a volume in use
			command(t, "dd", "if="+d.device, "of="+image, "bs=1M", "conv=sparse", "status=none")
			require.NoError(t, m.Unmount(t.Context(), path))
			shared := Stage{Device: d.device, Path: path, ReadOnly: true, Shared: true}
			require.NoError(t, m.FormatAndMount(t.Context(), shared), "it was unmounted in order")
			assert.Equal(t, "precious", readFile(t, path, "file"))
			require.ErrorIs(t, os.WriteFile(filepath.Join(path, "new"), nil, 0o600), unix.EROFS)
			require.NoError(t, m.Unmount(t.Context(), path))

			sum := func() [sha256.Size]byte {
				text, err := os.ReadFile(image)
				require.NoError(t, err)
				return sha256.Sum256(text)
			}
			before := sum()
			shared.Device = diskOn(t, image).device
			require.ErrorContains(t, m.FormatAndMount(t.Context(), shared), asItIs)
			_, err := m.At(path)
			require.ErrorIs(t, err, ErrNotMounted)
			assert.Equal(t, before, sum())
			shared.Flags = []string{asItIs}
			require.NoError(t, m.FormatAndMount(t.Context(), shared))
			require.NoError(t, m.Unmount(t.Context(), path))
			assert.Equal(t, before, sum())
			require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: shared.Device, Path: path}), "the device is not protected any longer")
			assert.Equal(t, "precious", readFile(t, path, "file"))
			require.NoError(t, m.Unmount(t.Context(), path))
		})
	}
}
