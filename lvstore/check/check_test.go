package check

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/device"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	storeUUID = "077791f0-2c50-4b9c-884a-d647fd95528c"
	pageAt    = 4 // position of the first metadata page
	size      = 1 << 20
)

// newImage returns the content of a device with an empty lvstore.
func newImage(t *testing.T) []byte {
	m := make([]byte, size)
	copy(m, "SPDKBLOB")
	le := binary.LittleEndian
	for at, v := range map[int]uint32{8: 3, 28: 64 << 10, 48: pageAt, 52: 28, 92: 4096} {
		le.PutUint32(m[at:], v)
	}
	le.PutUint64(m[20:], 1<<32)
	le.PutUint64(m[80:], size)
	le.PutUint32(m[4092:], crc32.Checksum(m[:4092], crc32.MakeTable(crc32.Castagnoli)))
	super, err := blobstore.ReadSuper(reader(m))
	require.NoError(t, err)
	page, at, err := blobstore.SuperPage(super, storeUUID, "lvs0")
	require.NoError(t, err)
	copy(m[at:], page)
	return m
}

type reader []byte

func (r reader) ReadAt(b []byte, at int64) (int, error) { return copy(b, r[at:]), nil }

func write(t *testing.T, m []byte) string {
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, m, 0o600))
	return path
}

func TestDamageIsFoundInAFile(t *testing.T) {
	sound := newImage(t)
	r := File(t.Context(), write(t, sound), false)
	require.NoError(t, r.Unchecked)
	assert.False(t, r.Damaged())
	assert.EqualValues(t, 28, r.Report.Pages)

	damaged := newImage(t)
	damaged[pageAt*4096+20]++
	path := write(t, damaged)
	for _, quick := range []bool{true, false} {
		r = File(t.Context(), path, quick)
		require.NoError(t, r.Unchecked)
		require.True(t, r.Damaged())
		assert.True(t, r.Report.Findings[0].Super)
	}
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, damaged, after, "nothing is written")

	require.ErrorIs(t, File(t.Context(), write(t, make([]byte, size)), false).Unchecked, blobstore.ErrNoBlobstore)
	require.ErrorIs(t, File(t.Context(), t.TempDir()+"/none", false).Unchecked, os.ErrNotExist)
	require.ErrorContains(t, File(t.Context(), t.TempDir(), false).Unchecked, "neither a file nor a block device")
	require.Error(t, File(t.Context(), write(t, sound[:4096]), false).Unchecked)
}

// target serves the results of answer on a socket that speaks SPDK's protocol.
func target(t *testing.T, answer func(method string, params map[string]any) any) *spdkrpc.Client {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				d, e := json.NewDecoder(c), json.NewEncoder(c)
				for {
					var call struct {
						ID     json.RawMessage `json:"id"`
						Method string          `json:"method"`
						Params map[string]any  `json:"params"`
					}
					if d.Decode(&call) != nil {
						return
					}
					_ = e.Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": answer(call.Method, call.Params)})
				}
			}()
		}
	}()
	s := spdkrpc.NewSocket(path)
	t.Cleanup(func() { _ = s.Close() })
	return spdkrpc.NewClient(s)
}

type p = map[string]any

func TestDamageIsFoundThroughATarget(t *testing.T) {
	m := newImage(t)
	damaged := write(t, make([]byte, 0))
	broken := newImage(t)
	broken[pageAt*4096]++
	require.NoError(t, os.WriteFile(damaged, broken, 0o600))
	specific := map[string]p{
		"aio0":    {"aio": p{"filename": write(t, m), "block_size_override": true, "readonly": false, "fallocate": false}},
		"uring0":  {"uring": p{"filename": damaged}},
		"disk7n3": {"nvme": []p{{"trid": p{}, "ns_data": p{"id": 3}}}},
		"odd":     {"nvme": []p{{"trid": p{}, "ns_data": p{"id": 3}}}},
		"malloc0": {},
	}
	var reads atomic.Int64
	rpc := target(t, func(method string, params p) any {
		switch method {
		case "spdk_get_version":
			return p{"version": "SPDK v26.05", "fields": p{"major": 26, "minor": 5, "patch": 0, "suffix": ""}}
		case "bdev_lvol_get_lvstores":
			var list []p
			for _, bdev := range []string{"aio0", "uring0", "disk7n3", "odd", "malloc0"} {
				list = append(list, p{"uuid": storeUUID, "name": "lvs0", "base_bdev": bdev})
			}
			return list
		case "bdev_get_bdevs":
			name := params["name"].(string)
			return []p{{"name": name, "product_name": "a " + name, "block_size": 512, "num_blocks": size / 512, "driver_specific": specific[name]}}
		case "bdev_lvol_get_lvols":
			return []p{}
		case "bdev_nvme_send_cmd":
			sqe, err := base64.URLEncoding.DecodeString(params["cmdbuf"].(string))
			assert.NoError(t, err)
			if params["cmd_type"] == "admin" && sqe[0] == 6 { // identify the controller
				return p{"cpl": base64.URLEncoding.EncodeToString(make([]byte, 16)), "data": base64.URLEncoding.EncodeToString(make([]byte, 4096))}
			}
			reads.Add(1)
			assert.Equal(t, []any{"disk7", "io", "c2h", byte(2), byte(3)}, []any{params["name"], params["cmd_type"], params["data_direction"], sqe[0], sqe[4]}, "only reads")
			from, n := binary.LittleEndian.Uint64(sqe[40:])*512, (uint64(binary.LittleEndian.Uint16(sqe[48:]))+1)*512
			assert.EqualValues(t, params["data_len"], n)
			return p{"cpl": base64.URLEncoding.EncodeToString(make([]byte, 16)), "data": base64.URLEncoding.EncodeToString(m[from : from+n])}
		}
		assert.Fail(t, "unexpected call of "+method)
		return nil
	})
	for _, quick := range []bool{true, false} {
		list, err := Target(t.Context(), rpc, quick)
		require.NoError(t, err)
		require.Len(t, list, 5)
		text := ""
		for _, r := range list {
			text += fmt.Sprintf("%s %t %t, ", r.Bdev, r.Unchecked == nil, r.Damaged())
		}
		assert.Equal(t, "aio0 true false, uring0 true true, disk7n3 true false, odd false false, malloc0 false false, ", text)
		require.ErrorIs(t, list[3].Unchecked, device.ErrNotReadable)
		require.ErrorIs(t, list[4].Unchecked, device.ErrNotReadable)
	}
	assert.Positive(t, reads.Load())
}

// The check reports a volume if its clusters in the target's memory differ from those on the
// device, unless they are changing.
func TestPersistentDifferencesAreReported(t *testing.T) {
	m := write(t, newImage(t))
	asked := uint64(0)
	rpc := target(t, func(method string, _ p) any {
		switch method {
		case "bdev_lvol_get_lvols":
			asked++
			return []p{{"name": "s", "uuid": "s", "is_snapshot": true, "num_allocated_clusters": 7}, {"name": "v", "uuid": "v", "num_allocated_clusters": asked}}
		case "spdk_get_version":
			return p{"version": "SPDK v26.05", "fields": p{"major": 26, "minor": 5, "patch": 0, "suffix": ""}}
		}
		return nil
	})
	d, err := device.OpenFile(m)
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	r := Result{Store: "lvs0", Report: blobstore.Report{Allocated: map[string]uint64{"s": 6, "v": 0}}}
	again, err := r.differences(t.Context(), rpc, r.Report)
	require.NoError(t, err)
	assert.Len(t, again, 2)
	once, err := r.differences(t.Context(), rpc, r.Report)
	require.NoError(t, err)
	assert.Equal(t, again[0], once[0])
	assert.NotEqual(t, again[1], once[1])
	assert.Contains(t, once[0], `"s" (s) has 7 clusters in the running target, but 6 on the device`)
}
