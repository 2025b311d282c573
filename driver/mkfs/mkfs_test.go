package mkfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMkfsOptionsAreChecked(t *testing.T) {
	for _, ok := range []struct{ fsType, options string }{
		{Ext4, ""}, {"", "-m 5"}, {Ext4, "-i 65536 -I 512 -m 5 -E stride=16,stripe_width=64 -O project,quota -J size=64 -L data -T largefile"},
		{XFS, "-m reflink=0,bigtime=1 -i size=1024,maxpct=5 -d su=64k,sw=4 -l size=64m -n size=8192 -s size=4096 -L data"},
		{Btrfs, "-d single -m dup -n 16384 --checksum xxhash -L data"},
	} {
		require.NoError(t, Check(ok.fsType, ok.options), "%s %s", ok.fsType, ok.options)
	}
	for _, bad := range []struct{ fsType, options, says string }{
		{"ntfs", "", "ext4, xfs, btrfs"},
		{Ext4, "-b 1024", "mkfs.ext4 -b is not allowed: use -E (stride="},
		{Ext4, "-F", "mkfs.ext4 -F is not allowed"},
		{Ext4, "-O ^has_journal", "project,quota"},
		{Ext4, "-E stride=16,discard", "the value of mkfs.ext4 -E"},
		{Ext4, "-J device=/dev/sda", "the value of mkfs.ext4 -J"},
		{Ext4, "/dev/sda", "is not allowed"},
		{Ext4, "-m", "the value of mkfs.ext4 -m"},
		{Ext4, "-m 51", "0 to 50"},
		{Ext4, "-m 05", "0 to 50"},
		{Ext4, "-m 1 -m 2", "twice"},
		{Ext4, "-L -f", "the value of mkfs.ext4 -L"},
		{Ext4, "-E stride=1,stride=2", "the value"},
		{XFS, "-m reflink=0,uuid=x", "the value of mkfs.xfs -m"},
		{XFS, "-l logdev=/dev/sda", "the value of mkfs.xfs -l"},
		{XFS, "-d file", "the value of mkfs.xfs -d"},
		{Btrfs, "-r /etc", "mkfs.btrfs -r is not allowed"},
		{Btrfs, "-d raid0", "single or dup"},
	} {
		err := Check(bad.fsType, bad.options)
		require.ErrorIs(t, err, ErrOption, bad.options)
		require.ErrorContains(t, err, bad.says, bad.options)
	}
}

func TestMkfsArgumentsAreBuilt(t *testing.T) {
	const id = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	for want, n := range map[string]New{
		"-q -b 4096 -m 0 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1":                             {Type: Ext4, Again: true},
		"-q -b 4096 -m 0 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1,stride=4 -U " + id + " -m 5": {Type: Ext4, UUID: id, Options: "-m 5 -E stride=4"},
		"-q -K": {Type: XFS}, "-q -K -f": {Type: XFS, Again: true},
		"-q -K -m uuid=" + id + " -m reflink=0": {Type: XFS, UUID: id, Options: "-m reflink=0"},
		"-q -K -U " + id + " -f -d single":      {Type: Btrfs, UUID: id, Options: "-d single", Again: true},
	} {
		args, err := n.Args()
		require.NoError(t, err)
		assert.Equal(t, want, strings.Join(args, " "))
	}
	_, err := New{Type: XFS, Options: "-f x"}.Args()
	require.ErrorIs(t, err, ErrOption)
}

// The real programs accept every allowed option.
func TestRealMkfsAcceptsEveryOption(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	for fsType, all := range map[string][]string{
		Ext4:  {"-i 65536", "-I 512", "-m 5", "-E stride=16,stripe_width=64", "-O project,quota,large_dir,verity,encrypt,casefold", "-J size=8", "-L data", "-T small", "-T news", "-T largefile", "-T largefile4"},
		XFS:   {"-m reflink=0,bigtime=1,rmapbt=1,finobt=1,inobtcount=1", "-i size=1024,maxpct=5,sparse=1", "-d su=64k,sw=4", "-d agcount=2", "-l size=64m", "-l su=64k", "-n size=8192", "-s size=4096", "-L data"},
		Btrfs: {"-d single", "-m single", "-d dup -m dup", "-n 16384", "--checksum xxhash", "--checksum sha256", "--checksum blake2", "-L data"},
	} {
		t.Run(fsType, func(t *testing.T) {
			if _, err := exec.LookPath("mkfs." + fsType); err != nil {
				t.Skipf("needs mkfs.%s", fsType)
			}
			for _, options := range all {
				require.NoError(t, Check(fsType, options))
				require.NoError(t, os.WriteFile(file, nil, 0o600))
				require.NoError(t, os.Truncate(file, 2<<30))
				args, err := New{Type: fsType, Options: options, UUID: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}.Args()
				require.NoError(t, err)
				out, err := exec.Command("mkfs."+fsType, append(args, file)...).CombinedOutput()
				require.NoError(t, err, "%s: %s", options, out)
			}
		})
	}
}
