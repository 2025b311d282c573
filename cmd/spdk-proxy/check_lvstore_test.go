package main

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// damagedStore returns a device whose page 0 has been overwritten.
func damagedStore(t *testing.T) string {
	m := make([]byte, 1<<20)
	copy(m, "SPDKBLOB")
	for at, v := range map[int]uint32{8: 3, 24: 1, 28: 64 << 10, 48: 4, 52: 28, 80: 1 << 20, 92: 4096} {
		binary.LittleEndian.PutUint32(m[at:], v)
	}
	binary.LittleEndian.PutUint32(m[4092:], crc32.Checksum(m[:4092], crc32.MakeTable(crc32.Castagnoli)))
	copy(m[4*4096:], "overwritten")
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, m, 0o600))
	return path
}

func TestCheckLvstoreReportsDamage(t *testing.T) {
	disk := damagedStore(t)
	page := filepath.Join(t.TempDir(), "page")
	const uuid = "077791f0-2c50-4b9c-884a-d647fd95528c"

	o := run(t, "", "check-lvstore", disk)
	assert.Equal(t, exitDamaged, o.code)
	assert.Contains(t, o.stdout, "DAMAGED. Do not stop or restart the target")
	assert.Contains(t, o.stdout, "metadata page 0, at byte 16384: the page that describes the lvstore has a wrong checksum")
	o = run(t, "", "check-lvstore", disk, "--repair-page", page, "--name", "lvs0", "--uuid", uuid)
	assert.Equal(t, exitDamaged, o.code)
	assert.Contains(t, o.stdout, "of="+disk+" bs=4096 seek=4 count=1")

	// Following the printed instructions repairs the damage.
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(text, 4*4096)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	o = run(t, "", "check-lvstore", disk)
	assert.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "no damage found, 28 metadata pages read")

	o = run(t, "", "check-lvstore", disk, page)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stdout, page+": not checked: ")
	for name, args := range map[string][]string{
		"nothing to check":        {},
		"a socket and a device":   {"--socket", "s", disk},
		"only a name":             {disk, "--name", "lvs0", "--repair-page", page},
		"a repair without a name": {damagedStore(t), "--repair-page", filepath.Join(t.TempDir(), "page")},
	} {
		assert.Equal(t, exitUsage, run(t, "", append([]string{"check-lvstore"}, args...)...).code, name)
	}
	o = run(t, "", "check-lvstore", damagedStore(t), "--repair-page", page, "--name", "lvs0", "--uuid", uuid)
	assert.Equal(t, exitFailed, o.code, "an existing file is not overwritten")
	target := target(t)
	o = run(t, "", "check-lvstore", "--socket", target.Socket())
	assert.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "the target has no lvstore")
	assert.Equal(t, exitUnreachable, run(t, "", "check-lvstore", "--socket", t.TempDir()+"/none").code)
}
