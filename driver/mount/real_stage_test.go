package mount

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/mkfs"
)

func TestDeviceIsStagedAndUnstaged(t *testing.T) {
	for _, fsType := range fileSystems {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path := mountPoint(t, m, "staging")
			s := Stage{Device: d.device, Path: path, FSType: fsType, Flags: []string{"noatime"}, MayFormat: true}

			_, err := m.At(path)
			require.ErrorIs(t, err, ErrNotMounted)
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			writeFile(t, path, "file", "precious")

			p, err := m.At(path)
			require.NoError(t, err)
			assert.Equal(t, d.device, p.Device)
			assert.Equal(t, fsType, p.FSType)
			assert.False(t, p.ReadOnly || p.Block || p.Stale)
			assert.Contains(t, p.options, "noatime")

			require.NoError(t, m.FormatAndMount(t.Context(), s), "repeated")
			assert.Equal(t, "precious", readFile(t, path, "file"))
			s.ReadOnly = true
			require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrConflict)

			require.NoError(t, m.Unmount(t.Context(), path))
			require.NoError(t, m.Unmount(t.Context(), path), "it is not mounted")
			require.DirExists(t, path)

			s.MayFormat = false
			require.NoError(t, m.FormatAndMount(t.Context(), s), "read-only, device has a file system")
			assert.Equal(t, "precious", readFile(t, path, "file"))
			require.ErrorIs(t, os.WriteFile(filepath.Join(path, "new"), nil, 0o600), unix.EROFS)
			require.NoError(t, m.UnmountAndRemove(t.Context(), path))
			require.NoDirExists(t, path)
			require.NoError(t, m.UnmountAndRemove(t.Context(), path))

			s.FSType, s.ReadOnly, s.MayFormat = "", false, true
			require.NoError(t, m.FormatAndMount(t.Context(), s), "no type requested: the existing one is used")
			assert.Equal(t, "precious", readFile(t, path, "file"))
		})
	}
}

func TestThinVolumeStaysThin(t *testing.T) {
	for fsType, mostMiB := range map[string]int64{ext4: 8, xfs: 80, btrfs: 12} {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, 10<<10)
			path := mountPoint(t, m, "staging")
			require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, FSType: fsType, MayFormat: true}))
			if fsType == ext4 {
				p, err := m.At(path)
				require.NoError(t, err)
				require.Contains(t, p.superOpts, "noinit_itable")
			}
			require.NoError(t, m.Unmount(t.Context(), path))
			var st unix.Stat_t
			require.NoError(t, unix.Stat(d.file, &st))
			used := st.Blocks * 512 / mib
			t.Logf("%s of 10 GiB occupies %d MiB", fsType, used)
			assert.LessOrEqual(t, used, mostMiB)
		})
	}
}

func TestStageRefusesUnsuitableDevices(t *testing.T) {
	last := int64(fsMiB*mib - 4096)
	for _, tt := range []struct {
		name    string
		prepare func(d *disk)
		stage   Stage
		kind    error
		says    string
	}{
		{"empty, a clone", nil, Stage{FSType: ext4}, ErrEmptyDevice, "so it is not formatted"},
		{"empty, read-only", nil, Stage{FSType: xfs, ReadOnly: true, MayFormat: true}, ErrEmptyDevice, "read-only"},
		{"empty, ro flag", nil, Stage{Flags: []string{"ro"}, MayFormat: true}, ErrEmptyDevice, "read-only"},
		{"data at the start", func(d *disk) { d.write(0, "x") }, Stage{MayFormat: true}, ErrHoldsData, "offset 0"},
		{"data in the fourth MiB", func(d *disk) { d.write(4*mib-1, "x") }, Stage{MayFormat: true}, ErrHoldsData, "offset 4194303"},
		{"data at the end", func(d *disk) { d.write(last, "x") }, Stage{MayFormat: true}, ErrHoldsData, "wipefs"},
		{"data in the middle", func(d *disk) { d.write(fsMiB*mib/2, "x") }, Stage{MayFormat: true}, ErrHoldsData, "wipefs"},
		{"another file system", func(d *disk) { command(d.t, "mkfs.ext4", "-q", d.device) }, Stage{FSType: xfs, MayFormat: true}, ErrWrongFilesystem, "request ext4"},
		{"the other file system", func(d *disk) { command(d.t, "mkfs.xfs", "-q", d.device) }, Stage{FSType: ext4, MayFormat: true}, ErrWrongFilesystem, "request xfs"},
		{"swap space", func(d *disk) { command(d.t, "mkswap", d.device) }, Stage{MayFormat: true}, ErrHoldsData, "swap"},
		{"partition table", func(d *disk) {
			d.write(446, "\x00\x20\x21\x00\x83\x2a\xc9\x28\x00\x08\x00\x00\x00\xf8\x09\x00")
			d.write(510, "\x55\xaa")
		}, Stage{MayFormat: true}, ErrHoldsData, "partition table (dos)"},
		{"btrfs without a superblock", func(d *disk) { d.write(0x10040, "_BHRfS_M") }, Stage{MayFormat: true}, nil, "mount failed"},
		{"cannot be read", func(d *disk) { require.NoError(d.t, os.Truncate(d.file, 0)) }, Stage{MayFormat: true}, ErrUnreadable, "it is left unchanged"},
		{"cannot be read at its end", func(d *disk) { require.NoError(d.t, os.Truncate(d.file, last)) }, Stage{MayFormat: true}, ErrUnreadable, "offset"},
		{"write-protected", func(d *disk) { command(d.t, "blockdev", "--setro", d.device) }, Stage{MayFormat: true}, ErrConflict, "write-protected"},
		{"damaged ext4", func(d *disk) {
			command(d.t, "mkfs.ext4", "-q", "-b", "4096", d.device)
			command(d.t, "debugfs", "-w", "-R", "clri <2>", d.device) // removes the root directory
			command(d.t, "tune2fs", "-E", "force_fsck", d.device)
		}, Stage{MayFormat: true}, ErrDamaged, "restore a snapshot"},
		{"too small for xfs", func(d *disk) { d.resize(16) }, Stage{FSType: xfs, MayFormat: true}, nil, "mkfs.xfs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			if tt.prepare != nil {
				tt.prepare(d)
			}
			tt.stage.Device, tt.stage.Path = d.device, mountPoint(t, m, "staging")
			err := m.FormatAndMount(t.Context(), tt.stage)
			require.Error(t, err)
			t.Log(err)
			if tt.kind != nil {
				require.ErrorIs(t, err, tt.kind)
			}
			require.ErrorContains(t, err, tt.says)
			require.ErrorContains(t, err, d.device)
			_, err = m.At(tt.stage.Path)
			require.ErrorIs(t, err, ErrNotMounted)
			if tt.name == "data at the start" {
				assert.Equal(t, []byte{'x', 0}, d.read(0, 2), "the device is unchanged")
			}
		})
	}
}

func mkfsArgs(t *testing.T, fsType string) []string {
	args, err := mkfs.New{Type: fsType}.Args()
	require.NoError(t, err)
	return args
}

func TestInterruptedMkfsIsRepeated(t *testing.T) {
	for name, prepare := range map[string]func(d *disk){
		"before mkfs": func(d *disk) { require.NoError(d.t, markFormatting(d.device, true)) },
		"ext4 half written": func(d *disk) {
			require.NoError(d.t, markFormatting(d.device, true))
			d.write(3*mib, "inode tables")
		},
		"ext4 written, mark not removed": func(d *disk) {
			require.NoError(d.t, markFormatting(d.device, true))
			command(d.t, "mkfs.ext4", append(mkfsArgs(d.t, ext4), d.device)...)
		},
		"ext4 without superblock": func(d *disk) {
			require.NoError(d.t, markFormatting(d.device, true))
			command(d.t, "mkfs.ext4", append(mkfsArgs(d.t, ext4), d.device)...)
			d.write(1024, string(make([]byte, 1024))) // the superblock is written last
		},
		"btrfs half written": func(d *disk) {
			require.NoError(d.t, markFormatting(d.device, true))
			command(d.t, "mkfs.btrfs", append(mkfsArgs(d.t, btrfs), d.device)...)
			d.write(64<<10+64, "!BHRfS_M") // mkfs changes this magic number when the file system is complete
		},
		"xfs half written": func(d *disk) {
			command(d.t, "mkfs.xfs", "-q", d.device)
			d.write(126, "\x01")
		},
	} {
		for _, fsType := range fileSystems {
			t.Run(name+", then "+fsType, func(t *testing.T) {
				m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
				prepare(d)
				s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), FSType: fsType}
				require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrEmptyDevice)
				s.MayFormat = true
				require.NoError(t, m.FormatAndMount(t.Context(), s))
				writeFile(t, s.Path, "file", "precious")
				require.NoError(t, m.Unmount(t.Context(), s.Path))
				require.NotContains(t, string(d.read((fsMiB-1)*mib, mib)), string(formattingMark))
				require.NoError(t, m.FormatAndMount(t.Context(), s))
				assert.Equal(t, "precious", readFile(t, s.Path, "file"))
			})
		}
	}
}

func TestMarkInUsedFilesystemIsIgnored(t *testing.T) {
	for _, fsType := range fileSystems {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), FSType: fsType, MayFormat: true}
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			writeFile(t, s.Path, "file", "precious")
			require.NoError(t, m.Unmount(t.Context(), s.Path))
			require.NoError(t, markFormatting(d.device, true))
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			assert.Equal(t, "precious", readFile(t, s.Path, "file"))
		})
	}
}

func TestConflictingStagesAreRefused(t *testing.T) {
	m, d, other := testMounter(t, Options{}), newDisk(t, fsMiB), newDisk(t, fsMiB)
	path, second := mountPoint(t, m, "staging"), mountPoint(t, m, "second")
	s := Stage{Device: d.device, Path: path, FSType: ext4, MayFormat: true}
	require.NoError(t, m.FormatAndMount(t.Context(), s))

	s.Path = second
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrConflict, "mounted elsewhere")
	s.Path, s.Device = path, other.device
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrConflict, "another device is mounted at the path")
	s.Path = second
	held, err := openDevice(other.device, os.O_RDONLY)
	require.NoError(t, err)
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrBusy)
	require.NoError(t, held.Close())
	require.NoError(t, m.FormatAndMount(t.Context(), s))
	s.FSType = xfs
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrConflict, "mounted as ext4")
	s.FSType, s.Flags = ext4, []string{"noexec"}
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrConflict, "mounted without noexec")

	s.Device = "/dev/null"
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrInvalid)
	s.Device = d.file
	require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrInvalid, "mount(8) would create a loop device")
}

func TestFilesystemGrowsWithTheDevice(t *testing.T) {
	for _, fsType := range fileSystems {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path := mountPoint(t, m, "staging")
			s := Stage{Device: d.device, Path: path, FSType: fsType, MayFormat: true}
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			writeFile(t, path, "file", "precious")
			before, err := m.Grow(t.Context(), path)
			require.NoError(t, err)
			require.EqualValues(t, fsMiB*mib, before)

			d.resize(2 * fsMiB)
			if err := CanGrow(fsType); err != nil {
				_, growErr := m.Grow(t.Context(), path)
				require.ErrorIs(t, growErr, ErrUnsupported)
				t.Skip(err)
			}
			after, err := m.Grow(t.Context(), path)
			require.NoError(t, err)
			require.EqualValues(t, 2*fsMiB*mib, after)
			again, err := m.Grow(t.Context(), path)
			require.NoError(t, err)
			require.Equal(t, after, again)
			stats, err := m.Stats(t.Context(), path)
			require.NoError(t, err)
			assert.Greater(t, stats.TotalBytes, before)

			require.NoError(t, m.Unmount(t.Context(), path))
			d.resize(3 * fsMiB)
			s.MayFormat = false
			require.NoError(t, m.FormatAndMount(t.Context(), s), "a restore to a larger volume")
			stats, err = m.Stats(t.Context(), path)
			require.NoError(t, err)
			assert.Greater(t, stats.TotalBytes, after)
			assert.Equal(t, "precious", readFile(t, path, "file"))
		})
	}
	m := testMounter(t, Options{})
	_, err := m.Grow(t.Context(), t.TempDir())
	require.ErrorIs(t, err, ErrNotMounted)
}

func TestCloneIsMountedAlongsideItsSource(t *testing.T) {
	for _, fsType := range []string{ext4, xfs} {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			path := mountPoint(t, m, "staging")
			require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: d.device, Path: path, FSType: fsType, MayFormat: true}))
			writeFile(t, path, "file", "precious")
			unix.Sync()
			// Like a crash-consistent snapshot, the copy has a journal to replay. The source of the
			// copy remains mounted.
			copied := filepath.Join(t.TempDir(), "clone")
			command(t, "cp", "--sparse=always", d.file, copied)
			clone := diskOn(t, copied)
			second := mountPoint(t, m, "clone")
			require.NoError(t, m.FormatAndMount(t.Context(), Stage{Device: clone.device, Path: second, FSType: fsType}))
			assert.Equal(t, "precious", readFile(t, second, "file"))
		})
	}
}

// A device with random contents is formatted if no data has been stored on it yet, even if mkfs was
// interrupted. Ready is called when the file system is complete, but not for a device that is
// already in use.
func TestUnusedDeviceWithRandomContentsIsFormatted(t *testing.T) {
	for _, fsType := range fileSystems {
		t.Run(fsType, func(t *testing.T) {
			m, d := testMounter(t, Options{}), newDisk(t, fsMiB)
			noise := make([]byte, fsMiB*mib)
			_, err := rand.Read(noise)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(d.device, noise, 0o600))
			ready := 0
			s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), FSType: fsType, MayFinish: true}
			require.ErrorIs(t, m.FormatAndMount(t.Context(), s), ErrHoldsData)
			s.Unused = true
			interrupted := errors.New("interrupted before the mark is removed")
			s.Ready = func(context.Context) error { return interrupted }
			require.ErrorIs(t, m.FormatAndMount(t.Context(), s), interrupted)
			_, err = m.At(s.Path)
			require.ErrorIs(t, err, ErrNotMounted)
			s.Ready = func(context.Context) error { ready++; return nil }
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			writeFile(t, s.Path, "file", "precious")
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			assert.Equal(t, 1, ready)
			require.NoError(t, m.Unmount(t.Context(), s.Path))
			require.NoError(t, m.FormatAndMount(t.Context(), s))
			assert.Equal(t, "precious", readFile(t, s.Path, "file"), "a file system that was used is kept, even if the device counts as unused")
		})
	}
}

func TestDeviceContentsAreDetected(t *testing.T) {
	m, d := testMounter(t, Options{}), newDisk(t, 8)
	signature, dataAt, marked, err := m.Contents(t.Context(), d.device, true)
	require.NoError(t, err)
	assert.Equal(t, []any{"", int64(-1), false}, []any{signature, dataAt, marked})
	require.NoError(t, m.MarkFormatting(d.device, true))
	_, dataAt, marked, err = m.Contents(t.Context(), d.device, true)
	require.NoError(t, err)
	assert.True(t, marked)
	assert.Positive(t, dataAt)
	require.NoError(t, m.MarkFormatting(d.device, false))
	d.write(0, "LUKS\xba\xbe\x00\x02"+string(make([]byte, 500)))
	signature, dataAt, _, err = m.Contents(t.Context(), d.device, true)
	require.NoError(t, err)
	assert.Equal(t, []any{"crypto_LUKS", int64(0)}, []any{signature, dataAt})
	command(t, "blockdev", "--setro", d.device)
	_, _, _, err = m.Contents(t.Context(), d.device, true)
	require.ErrorIs(t, err, ErrConflict)
	_, _, _, err = m.Contents(t.Context(), d.device, false)
	require.NoError(t, err)
	_, _, _, err = m.Contents(t.Context(), "/dev/null", false)
	require.ErrorIs(t, err, ErrInvalid)
	s := Stage{Device: d.device, Path: mountPoint(t, m, "staging"), ReadOnly: true}
	err = m.FormatAndMount(t.Context(), s)
	require.ErrorIs(t, err, ErrHoldsData)
	require.ErrorContains(t, err, "encryption: luks2")
}
