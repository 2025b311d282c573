package changes

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type p = map[string]any

// A world is a simulated target with an lvstore, and the device that contains the lvstore's
// metadata.
type world struct {
	t       *testing.T
	store   blobstoretest.Store
	image   []byte
	path    string      // path of the device's file; "" if the device is an NVMe namespace
	change  func(b p)   // changes the description of a bdev
	reading func(n int) // called before the n-th read of the super block
	missing string      // UUID of a bdev missing from the target
	ended   bool        // the target has ended, but the device can still be read
	release string
	reads   int
	command func() // called before each NVMe command
	// unreadable reports whether a command that reads at this offset, in bytes, fails
	unreadable func(at uint64) bool

	mu     sync.Mutex
	locked [][]string
}

func newWorld(t *testing.T, onFile bool) *world {
	w := &world{t: t, release: "v26.05", store: blobstoretest.Store{
		UUID: "077791f0-2c50-4b9c-884a-d647fd95528c", Name: "lvs0", ClusterSize: 16 << 10, Clusters: 128, MetadataPages: 40,
		Lvols: []blobstoretest.Lvol{
			{UUID: "uuid-a", Name: "a", Clusters: 1200, Allocated: []uint64{0, 3, 600}},
			{UUID: "uuid-b", Name: "b", Clusters: 1200, Parent: 1, Allocated: []uint64{1, 3}},
			{UUID: "uuid-c", Name: "c", Clusters: 1300, Parent: 2, Allocated: []uint64{1299, 700}},
			{UUID: "uuid-v", Name: "v", Clusters: 1300, Parent: 3, Allocated: []uint64{8}, Writable: true},
		},
	}}
	w.write(onFile)
	return w
}

func (w *world) write(onFile bool) {
	w.image = w.store.Image()
	if onFile {
		w.path = filepath.Join(w.t.TempDir(), "disk")
		require.NoError(w.t, os.WriteFile(w.path, w.image, 0o600))
	}
}

func (w *world) bdev(i int) p {
	l := w.store.Lvols[i]
	d := p{"lvol_store_uuid": w.store.UUID, "base_bdev": "disk7n1", "snapshot": !l.Writable, "clone": l.Parent > 0, "num_allocated_clusters": len(l.Allocated), "esnap_clone": false}
	if l.Parent > 0 {
		d["base_snapshot"] = w.store.Lvols[l.Parent-1].Name
	}
	b := p{"name": l.UUID, "uuid": l.UUID, "aliases": []string{w.store.Name + "/" + l.Name}, "block_size": 512, "num_blocks": l.Clusters * uint64(w.store.ClusterSize) / 512, "driver_specific": p{"lvol": d}}
	if w.change != nil {
		w.change(b)
	}
	return b
}

func (w *world) Call(_ context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var q struct {
		Name, Cmdbuf string
		Kind         string `json:"cmd_type"`
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return err
	}
	answer, err := w.answer(method, q.Name, q.Cmdbuf, q.Kind)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(answer); err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

func (w *world) answer(method, name, command, kind string) (any, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch method {
	case "spdk_get_version":
		return p{"version": "SPDK " + w.release}, nil
	case "bdev_nvme_send_cmd":
		sqe, err := base64.URLEncoding.DecodeString(command)
		require.NoError(w.t, err)
		data := make([]byte, 4096)
		if w.command != nil {
			w.command()
		}
		cpl := make([]byte, 16)
		if kind == "io" {
			from, n := binary.LittleEndian.Uint64(sqe[40:])*512, (uint64(binary.LittleEndian.Uint16(sqe[48:]))+1)*512
			if from == 0 {
				if w.reads++; w.reading != nil {
					w.reading(w.reads)
				}
			}
			data = w.image[from : from+n]
			if w.unreadable != nil && w.unreadable(from) {
				cpl[14] = 2
			}
		}
		return p{"cpl": base64.URLEncoding.EncodeToString(cpl), "data": base64.URLEncoding.EncodeToString(data)}, nil
	}
	require.Equal(w.t, "bdev_get_bdevs", method)
	if w.ended {
		return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Unreachable}
	}
	if name == "disk7n1" {
		specific := p{"nvme": []p{{"trid": p{}, "ns_data": p{"id": 1}}}}
		if w.path != "" {
			specific = p{"aio": p{"filename": w.path, "block_size_override": true, "readonly": false, "fallocate": false}}
		}
		return []p{{"name": name, "block_size": 512, "num_blocks": len(w.image) / 512, "driver_specific": specific}}, nil
	}
	for i, l := range w.store.Lvols {
		if l.UUID != w.missing && (l.UUID == name || w.store.Name+"/"+l.Name == name) {
			return []p{w.bdev(i)}, nil
		}
	}
	return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice, Code: -19}
}

func (w *world) target() Target {
	return Target{RPC: spdkrpc.NewClient(w), Release: rpcschema.MustRelease(w.release), Lock: func(ctx context.Context, find func(context.Context) ([]string, error), do func(context.Context) error) error {
		for range 2 {
			names, err := find(ctx)
			if err != nil {
				return err
			}
			w.locked = append(w.locked, names)
		}
		return do(ctx)
	}}
}

func (w *world) read(snapshot, base string) (*Changes, error) {
	return new(Reader).Read(w.t.Context(), w.target(), snapshot, base)
}

func bits(b []byte) (list []int) {
	for i := range len(b) * 8 {
		if b[i/8]>>(i%8)&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}
