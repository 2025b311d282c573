package spdktest

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const mib = 1 << 20

// file returns the path of a volume's file.
func (b *bench) file(id string) string {
	b.Helper()
	found, err := filepath.Glob(filepath.Join(b.target.opts.DataDir, "lvstores", "*", id+".img"))
	require.NoError(b, err)
	require.Len(b, found, 1)
	return found[0]
}

func (b *bench) write(id, text string, at int64) {
	b.Helper()
	f, err := os.OpenFile(b.file(id), os.O_WRONLY, 0)
	require.NoError(b, err)
	_, err = f.WriteAt([]byte(text), at)
	require.NoError(b, err)
	require.NoError(b, f.Close())
}

func (b *bench) read(id string, n int, at int64) string {
	b.Helper()
	f, err := os.Open(b.file(id))
	require.NoError(b, err)
	defer f.Close()
	buf := make([]byte, n)
	_, err = f.ReadAt(buf, at)
	require.NoError(b, err)
	return string(bytes.Trim(buf, "\x00"))
}

func (b *bench) length(id string) int64 {
	b.Helper()
	info, err := os.Stat(b.file(id))
	require.NoError(b, err)
	return info.Size()
}

func TestVolumesStoreData(t *testing.T) {
	b := start(t, Options{DataDir: t.TempDir()})
	b.store()
	v := b.lvol("v", 10)
	require.EqualValues(t, 12*mib, b.length(v), "whole clusters")
	b.write(v, "first", 5)
	b.write(v, "far away", 9*mib)

	s := b.text("bdev_lvol_snapshot", p{"lvol_name": v, "snapshot_name": "s"})
	b.write(v, "FIRST", 5)
	assert.Equal(t, "first", b.read(s, 5, 5), "a snapshot does not change")
	assert.Equal(t, "far away", b.read(s, 8, 9*mib))
	assert.EqualValues(t, 12*mib, b.length(s))
	info, err := os.Stat(b.file(s))
	require.NoError(t, err)
	assert.Less(t, info.Sys().(*syscall.Stat_t).Blocks*512, int64(2*mib), "holes stay holes")

	c := b.text("bdev_lvol_clone", p{"snapshot_name": s, "clone_name": "c"})
	assert.Equal(t, "first", b.read(c, 5, 5), "a clone contains the snapshot's data")
	b.write(c, "clone", 5)
	assert.Equal(t, "first", b.read(s, 5, 5))
	assert.Equal(t, "FIRST", b.read(v, 5, 5))

	for _, method := range []string{"bdev_lvol_decouple_parent", "bdev_lvol_inflate"} {
		b.ok(method, p{"name": c})
		assert.Equal(t, "clone", b.read(c, 5, 5), method)
		assert.Equal(t, "far away", b.read(c, 8, 9*mib), method)
	}
	b.ok("bdev_lvol_delete", p{"name": s})
	assert.Equal(t, "FIRST", b.read(v, 5, 5), "the merged snapshot's place")
	assert.Equal(t, "far away", b.read(v, 8, 9*mib))

	b.ok("bdev_lvol_resize", p{"name": v, "size_in_mib": 20})
	assert.EqualValues(t, 20*mib, b.length(v))
	assert.Equal(t, "far away", b.read(v, 8, 9*mib))
	assert.Empty(t, b.read(v, 8, 19*mib))
	b.ok("bdev_lvol_resize", p{"name": v, "size_in_mib": 4})
	b.ok("bdev_lvol_resize", p{"name": v, "size_in_mib": 12})
	assert.Equal(t, "FIRST", b.read(v, 5, 5))
	assert.Empty(t, b.read(v, 8, 9*mib), "data beyond the new size is lost")

	again := b.text("bdev_lvol_create", p{"lvs_name": "lvs", "lvol_name": "again", "size_in_mib": 12})
	assert.Empty(t, b.read(again, 100, 0), "a new volume is empty")
	b.ok("bdev_lvol_rename", p{"old_name": again, "new_name": "renamed"})
	assert.EqualValues(t, 12*mib, b.length(again))
}

// TestVolumeKeepsItsFile checks that a volume's file is never replaced, because a loop device may
// be attached to it.
func TestVolumeKeepsItsFile(t *testing.T) {
	b := start(t, Options{DataDir: t.TempDir()})
	b.store()
	v := b.lvol("v", 8)
	f, err := os.OpenFile(b.file(v), os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	before, err := f.Stat()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("attached"), 0)
	require.NoError(t, err)
	s := b.text("bdev_lvol_snapshot", p{"lvol_name": v, "snapshot_name": "s"})
	b.ok("bdev_lvol_resize", p{"name": v, "size_in_mib": 16})
	b.ok("bdev_lvol_decouple_parent", p{"name": v})
	b.ok("bdev_lvol_rename", p{"old_name": v, "new_name": "w"})
	after, err := os.Stat(b.file(v))
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))
	assert.Equal(t, "attached", b.read(s, 8, 0))
	_, err = f.WriteAt([]byte("still on"), 0)
	require.NoError(t, err)
	assert.Equal(t, "still on", b.read(v, 8, 0))
	assert.Equal(t, "attached", b.read(s, 8, 0))

	path := b.file(v)
	b.ok("bdev_lvol_delete", p{"name": v})
	require.NoFileExists(t, path)
	buf := make([]byte, 8)
	_, err = f.ReadAt(buf, 0)
	require.NoError(t, err)
	assert.Equal(t, "still on", string(buf))
	assert.Equal(t, "attached", b.read(s, 8, 0), "a snapshot without its volume")
}

// TestSetParentKeepsWrittenClusters checks that a volume keeps the clusters that were written to
// it, and reads all other clusters from its new parent.
func TestSetParentKeepsWrittenClusters(t *testing.T) {
	b := start(t, Options{DataDir: t.TempDir()})
	b.store()
	const cluster = 4 * mib
	one, two := b.lvol("one", 12), b.lvol("two", 12)
	for at := range int64(3) {
		b.write(one, "1", at*cluster)
		b.write(two, "2", at*cluster)
	}
	b.text("bdev_lvol_snapshot", p{"lvol_name": one, "snapshot_name": "s1"})
	b.text("bdev_lvol_snapshot", p{"lvol_name": two, "snapshot_name": "s2"})
	b.write(one, "own", cluster)
	b.ok("bdev_lvol_set_parent", p{"lvol_name": one, "parent_name": "lvs/s2"})
	assert.Equal(t, []string{"2", "own", "2"}, []string{b.read(one, 3, 0), b.read(one, 3, cluster), b.read(one, 3, 2*cluster)})

	disk := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(disk, []byte("external"), 0o600))
	require.NoError(t, os.Truncate(disk, 12*mib))
	b.ok("bdev_aio_create", p{"name": "image", "filename": disk, "block_size": 512})
	clone := b.text("bdev_lvol_clone_bdev", p{"bdev": "image", "lvs_name": "lvs", "clone_name": "e"})
	assert.Equal(t, "external", b.read(clone, 8, 0))
	b.write(clone, "written", 0)
	image, err := os.ReadFile(disk)
	require.NoError(t, err)
	assert.Equal(t, "external", string(image[:8]))
	b.ok("bdev_lvol_set_parent_bdev", p{"lvol_name": one, "parent_name": "image"})
	assert.Equal(t, []string{"external", "own", ""}, []string{b.read(one, 8, 0), b.read(one, 8, cluster), b.read(one, 8, 2*cluster)})
}

func TestVolumesPersistAcrossProcesses(t *testing.T) {
	data := t.TempDir()
	b := start(t, Options{DataDir: data})
	path := b.store()
	v := b.lvol("v", 10)
	b.write(v, "bytes", 100)
	s := b.text("bdev_lvol_snapshot", p{"lvol_name": v, "snapshot_name": "s"})
	c := b.text("bdev_lvol_clone", p{"snapshot_name": s, "clone_name": "c"})
	b.ok("bdev_lvol_set_read_only", p{"name": c})
	thick := b.text("bdev_lvol_create", p{"lvs_name": "lvs", "lvol_name": "thick", "size_in_mib": 8})
	b.ok("bdev_malloc_create", p{"name": "m", "num_blocks": 16384, "block_size": 4096})
	b.ok("bdev_lvol_create_lvstore", p{"bdev_name": "m", "lvs_name": "fleeting"})
	b.export(v)
	var stores, lvols []map[string]any
	require.NoError(t, b.call("bdev_lvol_get_lvstores", p{"lvs_name": "lvs"}, &stores))
	require.NoError(t, b.call("bdev_lvol_get_lvols", p{"lvs_name": "lvs"}, &lvols))
	var bdevs []spdkrpc.BdevInfo
	for _, id := range []string{v, s, thick} {
		bdevs = append(bdevs, b.bdev(id))
	}
	require.NoError(t, b.target.Close())
	require.NoDirExists(t, filepath.Join(data, "exports"))

	b = start(t, Options{DataDir: data})
	assert.Empty(t, b.names("bdev_lvol_get_lvstores", "name"), "volumes do not appear before their disk exists")
	b.aio(path)
	var storesNow, lvolsNow []map[string]any
	require.NoError(t, b.call("bdev_lvol_get_lvstores", nil, &storesNow))
	require.NoError(t, b.call("bdev_lvol_get_lvols", nil, &lvolsNow))
	assert.Equal(t, stores, storesNow)
	assert.Equal(t, lvols, lvolsNow)
	for i, id := range []string{v, s, thick} {
		now := b.bdev(id)
		bdevs[i].Claimed, bdevs[i].ClaimType = false, nil // the subsystem no longer exists
		assert.Equal(t, bdevs[i], now)
	}
	assert.False(t, b.bdev(c).SupportedIOTypes.Write, "the volume becomes read-only at the next start")
	assert.Equal(t, "bytes", b.read(v, 5, 100))
	assert.Equal(t, "bytes", b.read(c, 5, 100))
	kept, err := os.ReadDir(filepath.Join(data, "lvstores"))
	require.NoError(t, err)
	assert.Len(t, kept, 1, "the lvstore in memory is lost")
	b.ok("bdev_lvol_delete_lvstore", p{"lvs_name": "lvs"})
	kept, err = os.ReadDir(filepath.Join(data, "lvstores"))
	require.NoError(t, err)
	assert.Empty(t, kept)
}
