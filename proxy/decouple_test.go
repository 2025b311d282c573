package proxy

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A volume that is larger than its parent is not decoupled, because SPDK would read past the end of
// a list.
func TestEnlargedVolumesAreNotDecoupled(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	b.call(t, "bdev_malloc_create", `{"name":"base","num_blocks":65536,"block_size":4096}`)
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base","lvs_name":"lvs0"}`)
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":8}`)
	b.call(t, "bdev_lvol_snapshot", `{"lvol_name":"lvs0/v","snapshot_name":"s"}`)
	for _, name := range []string{"same", "larger"} {
		b.call(t, "bdev_lvol_clone", `{"snapshot_name":"lvs0/s","clone_name":"`+name+`"}`)
	}
	b.call(t, "bdev_lvol_resize", `{"name":"lvs0/larger","size_in_mib":12}`)
	b.call(t, decoupleMethod, `{"name":"lvs0/same"}`)
	b.target.ForgetCalls()
	g := b.post(rpcCall(decoupleMethod, `{"name":"lvs0/larger"}`))
	assert.Equal(t, http.StatusOK, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t))
	assert.Contains(t, g.body, "Nothing was executed")
	for skip := range 10 { // including calls while the parent's size is unknown
		b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Skip: skip, Do: spdktest.Fail})
		b.post(rpcCall(decoupleMethod, `{"name":"lvs0/larger"}`))
		b.target.ClearFaults()
	}
	for _, c := range b.target.Calls() {
		assert.NotEqual(t, decoupleMethod, c.Method)
	}
	assert.Equal(t, -19, b.post(rpcCall(decoupleMethod, `{"name":"lvs0/none"}`)).code(t), "SPDK's own answer")
}

// The proxy refuses to inflate a volume that is larger than its parent on SPDK v24.01, which would
// crash.
func TestEnlargedVolumesAreNotInflatedByOldReleases(t *testing.T) {
	for release, refused := range map[string]bool{"v24.01": true, "v26.05": false} {
		b := newBench(t, release, withJournal(t))
		b.family(t)
		b.call(t, "bdev_lvol_inflate", `{"name":"lvs0/c"}`)
		b.call(t, "bdev_lvol_resize", `{"name":"lvs0/v","size_in_mib":12}`)
		b.target.ForgetCalls()
		g := b.post(rpcCall(inflateMethod, `{"name":"lvs0/v"}`))
		assert.Equal(t, refused, g.code(t) == jsonrpc.CodeInvalidParams, "%s: %s", release, g.body)
		sent := false
		for _, c := range b.target.Calls() {
			sent = sent || c.Method == inflateMethod
		}
		assert.Equal(t, !refused, sent, release)
	}
}

// A snapshot must not become a clone of its own clone. SPDK would allow this, but the snapshot
// could no longer be read and, after a restart, could not be loaded.
func TestParentLoopsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	for _, store := range []string{"lvs0", "lvs1"} {
		b.call(t, "bdev_malloc_create", `{"name":"base-`+store+`","num_blocks":65536,"block_size":4096}`)
		b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base-`+store+`","lvs_name":"`+store+`"}`)
	}
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":8,"thin_provision":true}`)
	for _, s := range []string{"s1", "s2"} {
		b.call(t, "bdev_lvol_snapshot", `{"lvol_name":"lvs0/v","snapshot_name":"`+s+`"}`)
	}
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"image","size_in_mib":8,"thin_provision":true}`)
	b.call(t, "bdev_lvol_set_read_only", `{"name":"lvs0/image"}`)
	b.call(t, "bdev_lvol_clone_bdev", `{"bdev":"lvs0/image","lvs_name":"lvs1","clone_name":"copy"}`)
	b.target.ForgetCalls()
	for params, method := range map[string]string{
		`{"lvol_name":"lvs0/s1","parent_name":"lvs0/s2"}`:      "bdev_lvol_set_parent",
		`{"lvol_name":"lvs0/s1","parent_name":"lvs1/copy"}`:    "bdev_lvol_set_parent_bdev",
		`{"lvol_name":"lvs0/image","parent_name":"lvs1/copy"}`: "bdev_lvol_set_parent_bdev",
	} {
		g := b.post(rpcCall(method, params))
		assert.Contains(t, g.body, "Nothing was executed", params)
		for _, c := range b.target.Calls() {
			assert.NotEqual(t, method, c.Method, params)
		}
	}
	b.call(t, "bdev_lvol_set_parent", `{"lvol_name":"lvs0/v","parent_name":"lvs0/s1"}`)
	assert.Equal(t, -19, b.post(rpcCall("bdev_lvol_set_parent", `{"lvol_name":"lvs0/none","parent_name":"lvs0/s1"}`)).code(t), "SPDK's own answer")
}

// The proxy refuses to change the parent of a snapshot, even one without clones, because that would
// change the snapshot's content.
func TestSnapshotsKeepTheirParent(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	b.call(t, "bdev_malloc_create", `{"name":"base","num_blocks":65536,"block_size":4096}`)
	b.call(t, "bdev_malloc_create", `{"name":"image","num_blocks":2048,"block_size":4096}`)
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base","lvs_name":"lvs0"}`)
	for _, name := range []string{"a", "b"} {
		b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"`+name+`","size_in_mib":8,"thin_provision":true}`)
		b.call(t, "bdev_lvol_snapshot", `{"lvol_name":"lvs0/`+name+`","snapshot_name":"`+name+`-s"}`)
		b.call(t, "bdev_lvol_delete", `{"name":"lvs0/`+name+`"}`)
	}
	b.target.ForgetCalls()
	for method, parent := range map[string]string{"bdev_lvol_set_parent": "lvs0/b-s", "bdev_lvol_set_parent_bdev": "image"} {
		g := b.post(rpcCall(method, `{"lvol_name":"lvs0/a-s","parent_name":"`+parent+`"}`))
		assert.Contains(t, g.body, "this is a snapshot", method)
		assert.Contains(t, g.body, "Nothing was executed", method)
		for _, c := range b.target.Calls() {
			assert.NotEqual(t, method, c.Method)
		}
	}
	b.call(t, "bdev_lvol_clone", `{"snapshot_name":"lvs0/a-s","clone_name":"c"}`)
	b.call(t, "bdev_lvol_set_parent", `{"lvol_name":"lvs0/c","parent_name":"lvs0/b-s"}`)
}

// After a restart, SPDK reports a snapshot without clones as a read-only volume. The simulated
// target does the same.
func TestSnapshotsKeepParentAndNameAfterARestart(t *testing.T) {
	b := newRestartBench(t, withJournal(t))
	b.call(t, "bdev_aio_create", `{"name":"disk","filename":"`+b.disk+`","block_size":4096}`)
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"disk","lvs_name":"lvs0"}`)
	for _, name := range []string{"a", "b"} {
		b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"`+name+`","size_in_mib":8,"thin_provision":true}`)
	}
	b.call(t, "bdev_lvol_snapshot", `{"lvol_name":"lvs0/b","snapshot_name":"b-s"}`)
	b.call(t, "bdev_lvol_set_read_only", `{"name":"lvs0/a"}`)
	b.call(t, "spdkgate_config_save", "")
	b.crash(t)
	require.Contains(t, b.call(t, "bdev_get_bdevs", `{"name":"lvs0/a"}`), `"snapshot":false`)
	b.target.ForgetCalls()
	for method, params := range map[string]string{
		"bdev_lvol_set_parent": `{"lvol_name":"lvs0/a","parent_name":"lvs0/b-s"}`,
		"bdev_lvol_rename":     `{"old_name":"lvs0/a","new_name":"c"}`,
	} {
		assert.Equal(t, -32602, b.post(rpcCall(method, params)).code(t), method)
		for _, c := range b.target.Calls() {
			assert.NotEqual(t, method, c.Method)
		}
	}
}
