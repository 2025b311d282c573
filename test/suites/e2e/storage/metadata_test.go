package storage

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/changes"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A history is a target with one volume, and the contents of the volume's snapshots.
type history struct {
	*testing.T
	target    *spdktest.Target
	rpc       *spdkrpc.Client
	data      string
	volume    string
	snapshots map[string][]byte // by name
}

const clusterSize = 64 << 10

func newHistory(t *testing.T, thin bool) *history {
	dir := t.TempDir()
	h := &history{T: t, data: filepath.Join(dir, "data"), snapshots: map[string][]byte{}}
	var err error
	h.target, err = spdktest.Start(spdktest.Options{DataDir: h.data, WriteMetadata: newMetadataWriter().write})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.target.Close()) })
	h.rpc = spdkrpc.NewClient(spdkrpc.NewSocket(h.target.Socket()))
	disk := filepath.Join(dir, "disk")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 1<<30))
	_, err = h.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: disk, BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	_, err = h.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: lvstore, ClusterSz: new(uint32(clusterSize))})
	require.NoError(t, err)
	id, err := h.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "v", SizeInMiB: 40, LvsName: new(lvstore), ThinProvision: new(thin)})
	require.NoError(t, err)
	h.volume = string(id)
	return h
}

// file returns the path of the volume's file.
func (h *history) file() string {
	found, err := filepath.Glob(filepath.Join(h.data, "lvstores", "*", h.volume+".img"))
	require.NoError(h, err)
	require.Len(h, found, 1)
	return found[0]
}

func (h *history) write(at int64, content []byte) {
	f, err := os.OpenFile(h.file(), os.O_WRONLY, 0)
	require.NoError(h, err)
	_, err = f.WriteAt(content, at)
	require.NoError(h, err)
	require.NoError(h, f.Close())
}

func (h *history) snapshot(name string) {
	_, err := h.rpc.BdevLvolSnapshot(h.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: lvstore + "/v", SnapshotName: name})
	require.NoError(h, err)
	h.snapshots[name], err = os.ReadFile(h.file())
	require.NoError(h, err)
}

func (h *history) delete(name string) {
	require.NoError(h, h.rpc.BdevLvolDelete(h.Context(), spdkrpc.BdevLvolDeleteParams{Name: lvstore + "/" + name}))
	delete(h.snapshots, name)
}

// changed reads the list of changed clusters in the same way as the proxy.
func (h *history) changed(snapshot, base string) (list []int) {
	if base != "" {
		base = lvstore + "/" + base
	}
	found, err := new(changes.Reader).Read(h.Context(), changes.Target{
		RPC: h.rpc, Release: rpcschema.MustRelease("v26.05"),
		Lock: func(ctx context.Context, find func(context.Context) ([]string, error), do func(context.Context) error) error {
			if _, err := find(ctx); err != nil {
				return err
			}
			return do(ctx)
		},
	}, lvstore+"/"+snapshot, base)
	require.NoError(h, err, "%s since %q", snapshot, base)
	require.EqualValues(h, clusterSize, found.ClusterSize)
	for i := range len(found.Bitmap) * 8 {
		if found.Bitmap[i/8]>>(i%8)&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}

// restored returns the contents of a base after a snapshot's changed clusters have been copied to
// it.
func (h *history) restored(snapshot, base string) []byte {
	content := make([]byte, len(h.snapshots[snapshot]))
	copy(content, h.snapshots[base])
	for _, i := range h.changed(snapshot, base) {
		copy(content[i*clusterSize:], h.snapshots[snapshot][i*clusterSize:(i+1)*clusterSize])
	}
	return content
}

func TestMetadataListsTheWrittenClusters(t *testing.T) {
	h := newHistory(t, true)
	h.write(0, []byte("first"))
	h.write(600*clusterSize+5, []byte("far away")) // listed in the second extent page
	h.snapshot("a")
	h.write(3*clusterSize, []byte("new"))
	h.write(600*clusterSize, make([]byte, 100)) // zeros instead of data
	h.snapshot("b")
	h.write(3*clusterSize, []byte("old"))
	h.snapshot("c")
	assert.Equal(t, []int{0, 600}, h.changed("a", ""))
	assert.Equal(t, []int{3, 600}, h.changed("b", "a"))
	assert.Equal(t, []int{3}, h.changed("c", "b"))
	h.delete("b")
	assert.Equal(t, []int{3, 600}, h.changed("c", "a"))
	assert.Equal(t, []int{0, 3, 600}, h.changed("c", ""))
	require.NoError(t, h.target.Restart())
	h.rpc = spdkrpc.NewClient(spdkrpc.NewSocket(h.target.Socket()))
	_, err := h.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: filepath.Join(filepath.Dir(h.data), "disk"), BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	assert.Equal(t, []int{3, 600}, h.changed("c", "a"), "after a restart")
}

func TestThickVolumesOwnAllClusters(t *testing.T) {
	h := newHistory(t, false)
	h.snapshot("a")
	h.write(clusterSize, []byte("new"))
	h.snapshot("b")
	assert.Len(t, h.changed("a", ""), 640)
	assert.Equal(t, []int{1}, h.changed("b", "a"))
}

// For each pair of snapshots, the later one can be restored from the earlier one and the list of
// changes.
func TestMetadataMatchesRandomHistories(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	h := newHistory(t, true)
	taken := 0
	for range 60 {
		if names := h.names(); len(names) > 4 && random.IntN(2) == 0 {
			h.delete(names[random.IntN(len(names))])
		}
		for range random.IntN(20) {
			h.write(random.Int64N(639)*clusterSize, bytes.Repeat([]byte{byte(random.IntN(256))}, 1+random.IntN(2*clusterSize)))
		}
		h.snapshot(fmt.Sprintf("s%03d", taken))
		taken++
		names := append(h.names(), "")
		snapshot, base := names[random.IntN(len(names)-1)], names[random.IntN(len(names))]
		require.True(t, bytes.Equal(h.snapshots[snapshot], h.restored(snapshot, base)), "%s since %q", snapshot, base)
	}
}

// names returns the snapshots in the order of their creation.
func (h *history) names() (list []string) {
	for i := range 1000 {
		if name := fmt.Sprintf("s%03d", i); h.snapshots[name] != nil {
			list = append(list, name)
		}
	}
	return list
}
