package mount

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilexec "k8s.io/utils/exec"
)

// withoutCapability replaces CanGrow, and behaves as in a container without CAP_SYS_RESOURCE.
func withoutCapability(fsType string) error {
	if fsType == xfs {
		return nil
	}
	return fmt.Errorf("%w: growing a mounted ext4 needs CAP_SYS_RESOURCE: delete the pods that use the volume on this node", ErrUnsupported)
}

// stagedExt4 returns a disk with an unmounted ext4 file system that contains one file. The disk has
// been enlarged.
func stagedExt4(t *testing.T, m *Mounter) (Stage, *disk) {
	d := newDisk(t, fsMiB)
	s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), FSType: ext4, MayFormat: true}
	require.NoError(t, m.FormatAndMount(t.Context(), s))
	writeFile(t, s.Path, "file", "precious")
	require.NoError(t, m.Unmount(t.Context(), s.Path))
	d.resize(2 * fsMiB)
	return s, d
}

// A process that is not permitted to grow a mounted ext4 file system grows the file system before
// mounting it.
func TestUnprivilegedProcessGrowsBeforeMounting(t *testing.T) {
	var log strings.Builder
	m := testMounter(t, Options{})
	m.log, m.canGrow = slog.New(slog.NewTextHandler(&log, nil)), withoutCapability
	s, d := stagedExt4(t, m)
	require.NoError(t, m.FormatAndMount(t.Context(), s))
	size, err := ext4Size(d.device)
	require.NoError(t, err)
	assert.EqualValues(t, 2*fsMiB*mib, size)
	assert.Equal(t, "precious", readFile(t, s.Path, "file"))
	assert.Contains(t, log.String(), "file system grown before it was mounted")

	require.NoError(t, m.FormatAndMount(t.Context(), s), "repeated")
	d.resize(3 * fsMiB)
	_, err = m.Grow(t.Context(), s.Path)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "delete the pods")
	require.NoError(t, m.FormatAndMount(t.Context(), s), "it is mounted, and works as before")
	require.NoError(t, m.Unmount(t.Context(), s.Path))
	require.NoError(t, m.FormatAndMount(t.Context(), s))
	after, err := m.Grow(t.Context(), s.Path)
	require.NoError(t, err, "it has the size already")
	assert.EqualValues(t, 3*fsMiB*mib, after)
	assert.Equal(t, "precious", readFile(t, s.Path, "file"))
}

// A file system that cannot be grown is mounted with its current size.
func TestFilesystemThatCannotGrowIsMounted(t *testing.T) {
	for name, can := range map[string]func(string) error{"before mounting": withoutCapability, "after mounting": func(string) error { return nil }} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			m := testMounter(t, Options{})
			m.log, m.canGrow = slog.New(slog.NewTextHandler(&log, nil)), can
			s, d := stagedExt4(t, m)
			m.exec = &fakeExec{answer: func(args []string) ([]byte, error) {
				if args[0] == "resize2fs" {
					return exits(1, "no room for group descriptors")(args)
				}
				return utilexec.New().Command(args[0], args[1:]...).CombinedOutput()
			}}
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			size, err := ext4Size(d.device)
			require.NoError(t, err)
			assert.EqualValues(t, fsMiB*mib, size)
			assert.Equal(t, "precious", readFile(t, s.Path, "file"))
			assert.Contains(t, log.String(), "no room for group descriptors")
			assert.Contains(t, log.String(), "file system mounted, but not grown")
		})
	}
}
