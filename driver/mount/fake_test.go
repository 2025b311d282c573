package mount

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"
)

// fakeExec runs a function instead of each command, and records the commands.
type fakeExec struct {
	utilexec.Interface
	answer func(args []string) ([]byte, error)

	mu  sync.Mutex
	ran []string
}

func (f *fakeExec) CommandContext(_ context.Context, name string, args ...string) utilexec.Cmd {
	line := append([]string{name}, args...)
	f.mu.Lock()
	f.ran = append(f.ran, strings.Join(line, " "))
	f.mu.Unlock()
	return fakeCmd{run: func() ([]byte, error) { return f.answer(line) }}
}

type fakeCmd struct {
	utilexec.Cmd
	run func() ([]byte, error)
}

func (c fakeCmd) CombinedOutput() ([]byte, error) { return c.run() }

func exits(code int, output string) func([]string) ([]byte, error) {
	return func([]string) ([]byte, error) {
		if code == 0 {
			return []byte(output), nil
		}
		return []byte(output), testingexec.FakeExitError{Status: code}
	}
}

func TestBlkidOutputIsParsed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func([]string) ([]byte, error)
		want   string
		kind   error
	}{
		{"ext4", exits(0, "DEVNAME=/dev/x\nUUID=1\nTYPE=ext4\nUSAGE=filesystem\n"), "ext4", nil},
		{"nothing", exits(2, ""), "", nil},
		{"partitions", exits(0, "PTTYPE=gpt\n"), "a partition table (gpt)", nil},
		{"partitions and a type", exits(0, "TYPE=ext4\nPTTYPE=dos\n"), "a partition table (dos)", nil},
		{"nameless", exits(0, "DEVNAME=/dev/x\n"), "a signature without a name", nil},
		{"ambiguous", exits(8, ""), "several signatures at once", nil},
		{"usage", exits(4, "blkid: what?"), "", ErrUnreadable},
		{"missing", func([]string) ([]byte, error) { return nil, &exec.Error{Name: "blkid", Err: exec.ErrNotFound} }, "", ErrUnsupported},
		{"cannot run", func([]string) ([]byte, error) { return nil, io.ErrUnexpectedEOF }, "", io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := New(Options{Exec: &fakeExec{answer: tt.answer}}).blkid("/dev/x")
			assert.Equal(t, tt.want, got)
			require.ErrorIs(t, err, tt.kind)
		})
	}
}

func TestE2fsckExitCodesAreInterpreted(t *testing.T) {
	for code, kind := range map[int]error{0: nil, 1: nil, 2: nil, 3: nil, 4: ErrDamaged, 5: ErrDamaged, 12: ErrDamaged} {
		err := testMounter(t, Options{Exec: &fakeExec{answer: exits(code, "said e2fsck")}}).fsck("/dev/x")
		require.ErrorIs(t, err, kind, "exit code %d", code)
	}
	for _, code := range []int{8, 16, 32, 128} {
		err := testMounter(t, Options{Exec: &fakeExec{answer: exits(code, "said e2fsck")}}).fsck("/dev/x")
		require.ErrorContains(t, err, "said e2fsck", "exit code %d", code)
	}
}

func TestDecideFormatsOnlyEmptyDevices(t *testing.T) {
	for _, tt := range []struct {
		name   string
		found  contents
		stage  Stage
		format bool
		fsType string
		kind   error
	}{
		{"empty", contents{}, Stage{FSType: xfs, MayFormat: true}, true, xfs, nil},
		{"empty, any type", contents{}, Stage{MayFormat: true}, true, ext4, nil},
		{"interrupted", contents{interrupted: true}, Stage{MayFormat: true}, true, ext4, nil},
		{"interrupted, must not finish", contents{interrupted: true}, Stage{}, false, "", ErrEmptyDevice},
		{"interrupted, may finish", contents{interrupted: true}, Stage{MayFinish: true}, true, ext4, nil},
		{"empty, may finish", contents{}, Stage{MayFinish: true}, false, "", ErrEmptyDevice},
		{"empty, must not format", contents{}, Stage{FSType: ext4}, false, ext4, ErrEmptyDevice},
		{"empty, read-only", contents{}, Stage{MayFormat: true, ReadOnly: true}, false, "", ErrEmptyDevice},
		{"as requested", contents{filesystem: xfs}, Stage{FSType: xfs, MayFormat: true}, false, xfs, nil},
		{"any type", contents{filesystem: xfs}, Stage{MayFormat: true}, false, xfs, nil},
		{"another type", contents{filesystem: xfs}, Stage{FSType: ext4, MayFormat: true}, false, ext4, ErrWrongFilesystem},
		{"other data", contents{other: "LVM2_member"}, Stage{FSType: ext4, MayFormat: true}, false, ext4, ErrHoldsData},
		{"encrypted", contents{other: "crypto_LUKS"}, Stage{FSType: ext4, MayFormat: true}, false, ext4, ErrHoldsData},
	} {
		t.Run(tt.name, func(t *testing.T) {
			format, err := decide(tt.found, &tt.stage)
			assert.Equal(t, tt.format, format)
			assert.Equal(t, tt.fsType, tt.stage.FSType)
			require.ErrorIs(t, err, tt.kind)
		})
	}
}

func TestContentsAreClassified(t *testing.T) {
	never, used := make([]byte, 4096), make([]byte, 4096)
	used[1024+44] = 1
	unfinished := append([]byte("XFSB"), make([]byte, 200)...)
	unfinished[126] = 1
	for _, tt := range []struct {
		name      string
		found     scanned
		signature string
		want      contents
	}{
		{"empty", scanned{dataAt: -1}, "", contents{}},
		{"data", scanned{dataAt: 7}, "", contents{other: "data at offset 7 that is not a known file system"}},
		{"found only by blkid", scanned{dataAt: -1}, "LVM2_member", contents{other: "LVM2_member"}},
		{"ext4", scanned{start: used}, "ext4", contents{filesystem: ext4}},
		{"ext4 without mark, never mounted", scanned{start: never}, "ext4", contents{filesystem: ext4}},
		{"ext4 with mark, never mounted", scanned{start: never, marked: true}, "ext4", contents{interrupted: true}},
		{"ext4 with mark, mounted before", scanned{start: used, marked: true}, "ext4", contents{filesystem: ext4}},
		{"ext4 with mark, superblock not read", scanned{marked: true}, "ext4", contents{filesystem: ext4}},
		{"mark only", scanned{marked: true, dataAt: 4096}, "", contents{interrupted: true}},
		{"mark on another file system", scanned{marked: true}, "f2fs", contents{other: "f2fs"}},
		{"btrfs with mark", scanned{marked: true}, "btrfs", contents{filesystem: btrfs}},
		{"unfinished xfs", scanned{start: unfinished}, "xfs", contents{interrupted: true}},
		{"xfs", scanned{start: make([]byte, 512), marked: true}, "xfs", contents{filesystem: xfs}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, classify(tt.found, tt.signature, false)) })
	}
	for _, tt := range []struct {
		name      string
		found     scanned
		signature string
		want      contents
	}{
		{"noise", scanned{dataAt: 0}, "", contents{interrupted: true}},
		{"noise with a signature", scanned{dataAt: 0}, "minix", contents{interrupted: true}},
		{"ext4, never mounted", scanned{start: never}, "ext4", contents{interrupted: true}},
		{"ext4, mounted before", scanned{start: used}, "ext4", contents{filesystem: ext4}},
		{"unfinished xfs", scanned{start: unfinished}, "xfs", contents{interrupted: true}},
		{"xfs", scanned{start: make([]byte, 512)}, "xfs", contents{filesystem: xfs}},
	} {
		t.Run("unused, "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, classify(tt.found, tt.signature, true)) })
	}
}

func TestScannedExtentsAreOnTheDevice(t *testing.T) {
	for _, size := range []int64{1, 512, 4096, mib, 5 * mib, 200 * mib, 1 << 44} {
		covered := int64(0)
		for _, p := range scannedExtents(size) {
			require.GreaterOrEqual(t, p.from, int64(0))
			require.Less(t, p.from, p.to)
			require.LessOrEqual(t, p.to, size)
			covered += p.to - p.from
		}
		require.GreaterOrEqual(t, covered, min(size, 5*mib))
		require.LessOrEqual(t, covered, int64(8*mib), "scanning a large device takes no longer")
	}
}

// The first superblocks of file systems, and ext4's first backup superblocks, are scanned on every
// device.
func TestScannedExtentsContainSuperblocks(t *testing.T) {
	for _, size := range []int64{200 * mib, 1<<40 + 12345} {
		for _, at := range []int64{0, 1024, 4*mib - 1, 8 * mib, 8*mib + 64<<10 - 1, 128 * mib, 128*mib + 64<<10 - 1, size - mib, size - 1, size / 2 &^ (64<<10 - 1)} {
			require.True(t, slices.ContainsFunc(scannedExtents(size), func(p extent) bool { return p.from <= at && at < p.to }), "%d of %d", at, size)
		}
	}
}

// scan returns the offset of the first data. Error messages contain this offset.
func TestScanReportsTheFirstData(t *testing.T) {
	for name, tt := range map[string]struct {
		data []int64
		want int64
	}{
		"none":                   {nil, -1},
		"at the start":           {[]int64{0}, 0},
		"at the start and later": {[]int64{0, 2*mib + 5, 8*mib - 1}, 0},
		"later only":             {[]int64{2*mib + 5, 8*mib - 1}, 2*mib + 5},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
			require.NoError(t, err)
			defer f.Close()
			require.NoError(t, f.Truncate(8*mib))
			for _, at := range tt.data {
				_, err := f.WriteAt([]byte("x"), at)
				require.NoError(t, err)
			}
			found, err := scan(t.Context(), f)
			require.NoError(t, err)
			assert.Equal(t, tt.want, found.dataAt)
		})
	}
}

func TestMountFlagsAreChecked(t *testing.T) {
	label := `context="system_u:object_r:container_file_t:s0:c1,c2"`
	kept, ro, err := checkFlags(xfs, []string{"noatime,discard", " ro ", "rw", "defaults", "noatime", "", "logbsize=256k", label})
	require.NoError(t, err)
	assert.True(t, ro)
	assert.Equal(t, []string{"noatime", "discard", "logbsize=256k", label}, kept)
	for _, bad := range []string{"bind", "remount", "loop=/dev/loop3", "x-mount.mkdir", "X-mount.subdir=/etc", "shared", "helper=sh", "-o", "a b", "a;b", "Offset=0", `context="a b"`,
		"errors=panic", "device=/dev/sda", "verity.hashdevice=/dev/sdb", "logdev=/dev/sdc", "rtdev=/dev/sdd", "journal_path=/dev/sde", "fatal_errors=panic", "sb=131072", "bsdgroup"} {
		for _, fs := range []string{"", ext4, xfs, btrfs} {
			_, _, err := checkFlags(fs, []string{"noatime", bad})
			require.ErrorIs(t, err, ErrInvalid, "%s %s", fs, bad)
		}
	}
	for option, fs := range map[string][]string{
		"noatime": {ext4, xfs, btrfs}, "discard": {ext4, xfs, btrfs}, "errors=remount-ro": {ext4}, "data=ordered": {ext4}, "noload": {ext4}, "logbsize=256k": {xfs}, "nouuid": {xfs},
		"compress=zstd:3": {btrfs}, "rescue=nologreplay": {btrfs}, "subvol=a/b": {btrfs}, "dax=inode": {ext4, xfs},
	} {
		for _, of := range []string{ext4, xfs, btrfs} {
			_, _, err := checkFlags(of, []string{option})
			assert.Equal(t, slices.Contains(fs, of), err == nil, "%s %s: %v", of, option, err)
		}
		_, _, err := checkFlags("", []string{option})
		require.NoError(t, err)
	}
	_, _, err = checkFlags(ext4, []string{"device=/dev/sda"})
	require.ErrorContains(t, err, `mount option "device=/dev/sda" is not allowed for volumes with ext4: remove it from the storage class`)
	_, err = Stage{FSType: "f2fs", Path: "/x"}.checked()
	require.ErrorIs(t, err, ErrInvalid)
	_, err = Stage{Path: "x"}.checked()
	require.ErrorIs(t, err, ErrInvalid)
}

// The driver adds an option only if the storage class does not set it.
func TestDefaultMountOptionsAreAddedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		stage Stage
		want  []string
	}{
		"ext4":                        {Stage{FSType: ext4}, []string{"noinit_itable"}},
		"ext4, with the option":       {Stage{FSType: ext4, Flags: []string{"init_itable=5"}}, []string{"init_itable=5"}},
		"xfs":                         {Stage{FSType: xfs}, []string{"nouuid"}},
		"xfs, with the option":        {Stage{FSType: xfs, Flags: []string{"nouuid"}}, []string{"nouuid"}},
		"btrfs":                       {Stage{FSType: btrfs}, []string{"nodiscard"}},
		"btrfs, another option":       {Stage{FSType: btrfs, Flags: []string{"noatime"}}, []string{"noatime", "nodiscard"}},
		"btrfs, with discard":         {Stage{FSType: btrfs, Flags: []string{"discard=async"}}, []string{"discard=async"}},
		"btrfs, with the option":      {Stage{FSType: btrfs, Flags: []string{"nodiscard"}}, []string{"nodiscard"}},
		"btrfs, read-only by request": {Stage{FSType: btrfs, ReadOnly: true}, []string{"nodiscard", "ro"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.stage.mountOptions()) })
	}
}
