package mount

import (
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func (d *disk) uuid() string {
	return command(d.t, "blkid", "-p", "-o", "value", "-s", "UUID", d.device)
}

// copied returns a copy of a disk that may be mounted. Like a crash-consistent snapshot, the copy
// has a journal to replay.
func (d *disk) copied() *disk {
	file := filepath.Join(d.t.TempDir(), "copy")
	unix.Sync()
	command(d.t, "cp", "--sparse=always", d.file, file)
	return diskOn(d.t, file)
}

// The UUID of a file system is set to the UUID of its volume: by mkfs for a new file system, and
// before mounting for a copy, even if the copy's log must be replayed. The copy can then be mounted
// alongside its source without nouuid.
func TestFilesystemUUIDFollowsTheVolume(t *testing.T) {
	for _, fsType := range []string{xfs, btrfs} {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			first, second, third := uuid.NewString(), uuid.NewString(), uuid.NewString()
			s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), FSType: fsType, UUID: first, MayFormat: true}
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			assert.Equal(t, first, d.uuid())
			writeFile(t, s.Path, "file", "precious")

			clone := d.copied()
			require.Equal(t, first, clone.uuid())
			c := Stage{Device: clone.device, Path: mountPoint(t, m, "clone"), FSType: fsType, UUID: second}
			require.NoError(t, m.FormatAndMount(t.Context(), c), "with a log to replay, beside its source")
			assert.Equal(t, second, clone.uuid())
			assert.Equal(t, "precious", readFile(t, c.Path, "file"))
			require.NoError(t, m.FormatAndMount(t.Context(), c))
			require.NoError(t, m.Unmount(t.Context(), c.Path))
			require.NoError(t, m.FormatAndMount(t.Context(), c))
			assert.Equal(t, second, clone.uuid(), "it has it already")
			require.NoError(t, m.Unmount(t.Context(), c.Path))

			c.ReadOnly, c.UUID = true, third
			require.NoError(t, m.FormatAndMount(t.Context(), c))
			assert.Equal(t, second, clone.uuid(), "nothing is written for a read-only mount")
			require.NoError(t, m.Unmount(t.Context(), c.Path))
			c.ReadOnly = false
			require.NoError(t, m.FormatAndMount(t.Context(), c))
			assert.Equal(t, third, clone.uuid())
			assert.Equal(t, "precious", readFile(t, c.Path, "file"))
			c.UUID = "not a UUID"
			require.ErrorIs(t, m.FormatAndMount(t.Context(), c), ErrInvalid)
		})
	}
}

// An older state of a btrfs file system, such as a restored snapshot, can be mounted after the
// newer state has been unmounted.
func TestOlderBtrfsIsMountedAfterANewerOne(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
	s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), FSType: btrfs, MayFormat: true}
	require.NoError(t, m.FormatAndMount(t.Context(), s))
	writeFile(t, s.Path, "file", "old")
	old := d.copied()
	for range 3 {
		writeFile(t, s.Path, "file", "new")
		unix.Sync()
	}
	require.NoError(t, m.Unmount(t.Context(), s.Path))
	r := Stage{Device: old.device, Path: mountPoint(t, m, "restored"), FSType: btrfs}
	require.NoError(t, m.FormatAndMount(t.Context(), r))
	assert.Equal(t, "old", readFile(t, r.Path, "file"))
}
