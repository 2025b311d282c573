package proxy

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// SPDK would attach a file a second time, and an lvstore on the second bdev would destroy the
// lvstore on the first. Therefore, the proxy refuses the call, whatever path leads to the file.
func TestFileCannotBeAttachedTwice(t *testing.T) {
	b := newBench(t, "v26.05")
	dir := t.TempDir()
	disk, other, link, hard := filepath.Join(dir, "disk"), filepath.Join(dir, "other"), filepath.Join(dir, "link"), filepath.Join(dir, "hard")
	for _, file := range []string{disk, other} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Truncate(file, 64<<20))
	}
	require.NoError(t, os.Symlink(disk, link))
	require.NoError(t, os.Link(disk, hard))
	params := func(name, file string) string {
		return fmt.Sprintf(`{"name":%q,"filename":%q,"block_size":4096}`, name, file)
	}
	b.call(t, "bdev_aio_create", params("d0", disk))
	for _, path := range []string{disk, dir + "/./disk", dir + "//disk", link, hard} {
		b.target.ForgetCalls()
		g := b.post(rpcCall("bdev_aio_create", params("d1", path)))
		assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t), g.body)
		assert.Contains(t, g.body, "bdev d0 already uses this file ("+disk+")", path)
		for _, c := range b.target.Calls() {
			assert.Equal(t, "bdev_get_bdevs", c.Method)
		}
	}
	b.call(t, "bdev_aio_create", `{"name":"reader","filename":"`+link+`","block_size":4096,"readonly":true}`)
	assert.Equal(t, -17, b.post(rpcCall("bdev_aio_create", params("d0", disk))).code(t), "SPDK's own error for a bdev that exists")
	b.call(t, "bdev_aio_create", params("d2", other))
	b.call(t, "bdev_aio_delete", `{"name":"d0"}`) // only the reader is left

	var made atomic.Int32
	var at sync.WaitGroup
	for i := range 4 {
		at.Go(func() {
			if g := b.post(rpcCall("bdev_aio_create", params(fmt.Sprint("e", i), link))); g.StatusCode == 200 && g.code(t) == 0 {
				made.Add(1)
			}
		})
	}
	at.Wait()
	assert.EqualValues(t, 1, made.Load(), "calls at the same time")
}
