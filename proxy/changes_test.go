package proxy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore/blobstoretest"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const changesMethod = "spdkgate_lvol_changes"

// chained creates snapshots s1 and s2 of volume v on a file. The simulated target writes no
// metadata, so chained writes the metadata that SPDK would have written. Snapshot sN occupies as
// many clusters as the target reports for it, starting with cluster N.
func (b *bench) chained(t *testing.T) (file string) {
	file = filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, make([]byte, 16<<20), 0o600))
	b.call(t, "bdev_aio_create", fmt.Sprintf(`{"name":"disk","filename":%q,"block_size":4096}`, file))
	b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"disk","lvs_name":"lvs0","cluster_sz":65536}`)
	b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":2}`)
	b.call(t, snapshotMethod, `{"lvol_name":"lvs0/v","snapshot_name":"s1"}`)
	b.call(t, snapshotMethod, `{"lvol_name":"lvs0/v","snapshot_name":"s2"}`)
	b.writeMetadata(t, file, nil)
	return file
}

// writeMetadata writes the metadata of s1, s2 and v. allocated overrides the numbers of clusters
// that the target reports.
func (b *bench) writeMetadata(t *testing.T, file string, allocated map[string][]uint64) {
	store := blobstoretest.Store{Name: "lvs0", ClusterSize: 64 << 10, Clusters: 256, MetadataPages: 40}
	for i, name := range []string{"s1", "s2", "v"} {
		var list []spdkrpc.BdevInfo
		require.NoError(t, json.Unmarshal([]byte(b.call(t, "bdev_get_bdevs", fmt.Sprintf(`{"name":"lvs0/%s"}`, name))), &list))
		l := list[0].DriverSpecific.Lvol
		store.UUID = *l.LvolStoreUUID
		made := blobstoretest.Lvol{UUID: list[0].UUID, Name: name, Parent: i, Clusters: 32, Writable: !*l.Snapshot}
		for n := uint64(0); l.NumAllocatedClusters != nil && n < *l.NumAllocatedClusters; n++ {
			made.Allocated = append(made.Allocated, (uint64(i)+1+n)%32)
		}
		if own, ok := allocated[name]; ok {
			made.Allocated = own
		}
		store.Lvols = append(store.Lvols, made)
	}
	require.NoError(t, os.WriteFile(file, store.Image(), 0o600))
}

// A snapshot that is smaller than its volume can be deleted only if the metadata shows that the
// volume has its own extent page, or that the snapshot has none.
func TestDeletionOfASnapshotOfALargerVolumeDependsOnTheMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		allocated map[string][]uint64
		missing   bool
		status    int
	}{
		"only the snapshot has a page": {map[string][]uint64{"s2": {0}, "v": nil}, false, http.StatusConflict},
		"both have a page":             {map[string][]uint64{"s2": {0}, "v": {5}}, false, http.StatusOK},
		"the snapshot has no page":     {map[string][]uint64{"s2": nil, "v": nil}, false, http.StatusOK},
		"the device cannot be read":    {map[string][]uint64{"s2": nil, "v": {5}}, true, http.StatusConflict},
	} {
		for _, method := range []string{"spdkgate_lvol_delete", "bdev_lvol_delete"} {
			t.Run(name+"/"+method, func(t *testing.T) {
				b := newBench(t, "v26.05", withJournal(t))
				file := b.chained(t)
				b.call(t, "bdev_lvol_resize", `{"name":"lvs0/v","size_in_mib":4}`)
				b.writeMetadata(t, file, c.allocated)
				if c.missing {
					require.NoError(t, os.Remove(file))
				}
				g := b.post(rpcCall(method, `{"name":"lvs0/s2"}`))
				assert.Equal(t, c.status, g.StatusCode, g.body)
				if c.status != http.StatusOK {
					assert.Equal(t, -32009, g.code(t))
					assert.Contains(t, g.body, "snapshot lvs0/s2 is smaller than its clone lvs0/v")
					assert.Equal(t, c.missing, strings.Contains(g.body, "could not be read"), g.body)
				}
			})
		}
	}
}

// SPDK v25.05 and later crash if they grow an lvstore that an earlier release created.
func TestLvstoresOfEarlierReleasesDoNotGrow(t *testing.T) {
	const grow, pageSize = "bdev_lvol_grow_lvstore", 92 // the offset in the super block
	for name, c := range map[string]struct {
		release                  string
		earlier, absent, refused bool
	}{
		"created by this release":   {"v26.05", false, false, false},
		"created by an earlier one": {"v26.05", true, false, true},
		"the device cannot be read": {"v26.05", true, true, false},
		"the target is of v24.01":   {"v24.01", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.release, withJournal(t))
			file := b.chained(t)
			image, err := os.ReadFile(file)
			require.NoError(t, err)
			if c.earlier {
				clear(image[pageSize : pageSize+4])
				blobstoretest.Seal(image[:blobstoretest.PageSize])
			}
			require.NoError(t, os.WriteFile(file, image, 0o600))
			if c.absent {
				require.NoError(t, os.Remove(file))
			}
			var stores []spdkrpc.LvolStore
			require.NoError(t, json.Unmarshal([]byte(b.call(t, "bdev_lvol_get_lvstores", `{}`)), &stores))
			for _, params := range []string{`{"lvs_name":"lvs0"}`, fmt.Sprintf(`{"uuid":%q}`, stores[0].UUID)} {
				g := b.post(rpcCall(grow, params))
				if c.refused {
					assert.Equal(t, -32602, g.code(t))
					assert.Contains(t, g.body, "SPDK before v25.05 created this lvstore, and SPDK v26.05 would crash")
				} else {
					assert.NotContains(t, g.body, "error")
				}
			}
			absent := b.post(rpcCall(grow, `{"lvs_name":"absent"}`)).body
			assert.Contains(t, absent, "error")
			assert.NotContains(t, absent, "would crash", "it is SPDK that refuses the call")
		})
	}
}

func changedClusters(t *testing.T, body string) (list []int) {
	var r struct {
		Result spdkrpc.ProxyLvolChanges
	}
	require.NoError(t, json.Unmarshal([]byte(body), &r))
	require.NotZero(t, r.Result.ClusterSize, body)
	bitmap, err := base64.StdEncoding.DecodeString(r.Result.Bitmap)
	require.NoError(t, err)
	for i := range len(bitmap) * 8 {
		if bitmap[i/8]>>(i%8)&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}

func TestSnapshotChangesAreReturned(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	file := b.chained(t)
	all := rpcCall(changesMethod, `{"snapshot":"lvs0/s2"}`)
	assert.Len(t, changedClusters(t, b.post(all).body), 32, "the volume was thick when s1 was taken")
	assert.Empty(t, changedClusters(t, b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/s2","base":"lvs0/s1"}`)).body), "nothing was written")
	assert.Equal(t, http.StatusOK, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(rpcCall("spdk_get_version", "{}"))).StatusCode)
	assert.Equal(t, http.StatusForbidden, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(all)).StatusCode, "only users whose roles allow the method")

	for params, code := range map[string]int{
		`{"snapshot":"lvs0/x"}`: -19, `{"snapshot":"lvs0/s2","base":"lvs0/x"}`: -19, `{"snapshot":"disk"}`: -19, `{"snapshot":"lvs0/v"}`: -22, `{"snapshot":""}`: -32602, `{}`: -32602,
	} {
		g := b.post(rpcCall(changesMethod, params))
		assert.Equal(t, code, g.code(t), "%s: %s", params, g.body)
	}
	assert.Len(t, changedClusters(t, b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/v","allow_volume":true}`)).body), 32)
	assert.Len(t, changedClusters(t, b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/s2","allow_volume":true}`)).body), 32)
	assert.Empty(t, changedClusters(t, b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/v","base":"lvs0/s1","allow_volume":true}`)).body), "nothing was written")
	g := b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/s1","base":"lvs0/v","allow_volume":true}`))
	assert.Equal(t, -22, g.code(t), "a volume is no base: %s", g.body)

	content, err := os.ReadFile(file)
	require.NoError(t, err)
	damaged := append([]byte{}, content...)
	clear(blobstoretest.Page(damaged, 4)) // the extent page of s1
	require.NoError(t, os.WriteFile(file, damaged, 0o600))
	g = b.post(all)
	assert.Equal(t, -74, g.code(t), g.body)
	assert.Contains(t, g.body, "check-lvstore")
	require.NoError(t, os.Remove(file))
	g = b.post(all)
	assert.Equal(t, -95, g.code(t), g.body)
	assert.Contains(t, g.body, "full backup")
}

// Targets older than v24.05 do not report numbers of clusters, so changes are read only if the
// configuration permits it.
func TestChangesBeforeV2405RequirePermission(t *testing.T) {
	for _, accept := range []bool{false, true} {
		b := newBench(t, "v24.01", withJournal(t), func(c *config.Config) { c.Target.AcceptChangesWithoutCounts = accept })
		b.chained(t)
		g := b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/s2"}`))
		if accept {
			assert.Contains(t, g.body, `"bitmap"`)
			continue
		}
		assert.Equal(t, -95, g.code(t), g.body)
		assert.Contains(t, g.body, "target.accept_changes_without_counts")
	}
}

// Reading changes and deleting snapshots in the same chain wait for each other.
func TestChangesAndDeletionsWaitForEachOther(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	b.chained(t)
	read := rpcCall(changesMethod, `{"snapshot":"lvs0/s2"}`)
	until := make(chan struct{})
	// The proxy queries the two snapshots before and after it locks them.
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Skip: 1 + 1 + 2, Times: 2, Until: until})
	b.target.ForgetCalls()
	done := make(chan got)
	go func() { done <- b.post(read) }()
	require.Eventually(t, func() bool { return len(b.reached()) >= 4 }, long, time.Millisecond)
	require.Eventually(t, func() bool {
		g := b.post(rpcCall(deleteMethod, `{"name":"lvs0/s2"}`))
		require.Equal(t, http.StatusTooManyRequests, g.StatusCode, g.body)
		return strings.Contains(g.body, "another call is using the volume")
	}, long, time.Millisecond)
	close(until)
	assert.Len(t, changedClusters(t, (<-done).body), 32)

	b.target.Inject(spdktest.Fault{Method: deleteMethod, Delay: 4 * time.Second})
	go func() { done <- b.post(rpcCall(deleteMethod, `{"name":"lvs0/s2"}`)) }()
	require.Eventually(t, func() bool {
		return b.post(read).StatusCode == http.StatusTooManyRequests
	}, long, 10*time.Millisecond)
	<-done
}

func TestTenantsCanReadOnlyTheirOwnChanges(t *testing.T) {
	b := newSafeBench(t, "v26.05", oneTeam, withJournal(t))
	b.chained(t)
	for _, params := range []string{`{"snapshot":"lvs0/%s"}`, `{"snapshot":"lvs0/%s","allow_volume":true}`, `{"snapshot":"lvs0/%s","base":"lvs0/s1"}`, `{"snapshot":"lvs0/s1","base":"lvs0/%s"}`} {
		theirs := b.as(t, "team", changesMethod, fmt.Sprintf(params, "s2"), http.StatusOK)
		nobodys := b.as(t, "team", changesMethod, fmt.Sprintf(params, "s3"), http.StatusOK)
		assert.Equal(t, -19, theirs.code(t), theirs.body)
		assert.Contains(t, nobodys.body, "bdev lvs0/s")
		assert.Equal(t, nobodys.body, strings.ReplaceAll(theirs.body, "lvs0/s2", "lvs0/s3"))
	}
	b = newSafeBench(t, "v26.05", func(c *config.Config) {
		oneTeam(c)
		c.Tenants["team"] = config.Tenant{LVStores: []string{"lvs0"}}
	}, withJournal(t))
	b.chained(t)
	assert.Len(t, changedClusters(t, b.as(t, "team", changesMethod, `{"snapshot":"lvs0/s2"}`, http.StatusOK).body), 32)
	assert.Contains(t, b.as(t, "team", changesMethod, `{"snapshot":"lvs0/s2","base":"lvs0/s1"}`, http.StatusOK).body, `"bitmap"`)
}

// Errors for tenants contain neither paths on the target's host nor bdevs below lvstores. The log
// contains both.
func TestChangesErrorsHideDevicesFromTenants(t *testing.T) {
	b := newSafeBench(t, "v26.05", func(c *config.Config) {
		oneTeam(c)
		c.Tenants["team"] = config.Tenant{LVStores: []string{"lvs0"}}
	}, withJournal(t))
	file := b.chained(t)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	refused := func(errno int, params, says string) {
		t.Helper()
		logged := len(b.log.Lines(t, "changes of a tenant's snapshot were not read"))
		g := b.as(t, "team", changesMethod, params, http.StatusOK)
		assert.Equal(t, errno, g.code(t), g.body)
		for _, hidden := range []string{file, filepath.Dir(file), "disk", "blob 0x"} {
			assert.NotContains(t, g.body, hidden)
		}
		assert.Contains(t, g.body, says)
		lines := b.log.Lines(t, "changes of a tenant's snapshot were not read")
		require.Len(t, lines, logged+1)
		assert.Contains(t, fmt.Sprint(lines[logged]), "disk")
	}
	damaged := append([]byte{}, content...)
	clear(blobstoretest.Page(damaged, 4)) // the extent page of s1
	require.NoError(t, os.WriteFile(file, damaged, 0o600))
	refused(-74, `{"snapshot":"lvs0/s2"}`, "full backup")
	require.NoError(t, os.WriteFile(file, content, 0o600))
	refused(-22, `{"snapshot":"lvs0/v"}`, "lvs0/v is a volume: take a snapshot of it")
	refused(-22, `{"snapshot":"lvs0/s2","base":"lvs0/v"}`, "lvs0/v is a volume: take a snapshot of it")
	require.NoError(t, os.Remove(file))
	refused(-95, `{"snapshot":"lvs0/s2"}`, "full backup")
}

// If the target ends during a call that only reads, the error says that nothing was changed.
func TestUnansweredReadsChangeNothing(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t))
	b.chained(t)
	for _, call := range []string{rpcCall(changesMethod, `{"snapshot":"lvs0/s2"}`), rpcCall("bdev_get_bdevs", `{}`)} {
		b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Close})
		g := b.post(call)
		assert.Equal(t, http.StatusGatewayTimeout, g.StatusCode, g.body)
		assert.Equal(t, -32054, g.code(t), g.body)
		assert.Contains(t, g.body, "nothing was changed")
		assert.NotContains(t, g.body, "Check the state")
	}
}

// If the device does not respond, the call fails at its deadline.
func TestReadingChangesEndsAtTheDeadline(t *testing.T) {
	b := newBench(t, "v26.05", withJournal(t), func(c *config.Config) {
		c.Target.Timeouts.Methods = map[string]config.Duration{changesMethod: config.Duration(200 * time.Millisecond)}
	})
	b.chained(t)
	until := make(chan struct{})
	defer close(until)
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Until: until})
	g := b.post(rpcCall(changesMethod, `{"snapshot":"lvs0/s2"}`))
	assert.Equal(t, http.StatusTooManyRequests, g.StatusCode, g.body)
	assert.Contains(t, g.body, "could not be read in time")
}
