package conformance

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

type p = map[string]any

// An operation is a call to a method that changes volumes.
type operation struct {
	method string
	params p
	gone   string // the volume that the operation deletes if it succeeds
}

func (o operation) String() string {
	text := o.method
	for _, name := range []string{"name", "lvol_name", "snapshot_name", "src_lvol_name", "old_name", "clone_name"} {
		if v, ok := o.params[name].(string); ok {
			text += " " + strings.TrimPrefix(v, "lvs0/")
			break
		}
	}
	return text
}

const subsystem = "nqn.2026-11.io.spdkgate:pairs"

// Each pair uses the following volumes: old is a snapshot below the snapshot s, and s is below the
// volume v and the clone c. The bdev outside is not in the lvstore.
func operations() (list []operation) {
	deletion := func(method, volume string) {
		list = append(list, operation{method, p{"name": "lvs0/" + volume}, "lvs0/" + volume})
	}
	for _, volume := range []string{"old", "s", "v", "c"} {
		deletion("bdev_lvol_delete", volume)
	}
	deletion("spdkgate_lvol_delete", "s")
	deletion("spdkgate_lvol_delete", "v")
	add := func(method string, params p) { list = append(list, operation{method: method, params: params}) }
	add("bdev_lvol_snapshot", p{"lvol_name": "lvs0/v", "snapshot_name": "new"})
	add("spdkgate_lvol_snapshot", p{"snapshots": []p{{"lvol_name": "lvs0/v", "snapshot_name": "new1"}, {"lvol_name": "lvs0/c", "snapshot_name": "new2"}}})
	add("bdev_lvol_clone", p{"snapshot_name": "lvs0/s", "clone_name": "made"})
	add("bdev_lvol_clone", p{"snapshot_name": "lvs0/old", "clone_name": "older"})
	add("bdev_lvol_clone_bdev", p{"bdev": "outside", "lvs_name": "lvs0", "clone_name": "external"})
	for _, volume := range []string{"v", "c"} {
		add("bdev_lvol_inflate", p{"name": "lvs0/" + volume})
	}
	add("bdev_lvol_decouple_parent", p{"name": "lvs0/v"})
	add("bdev_lvol_set_parent", p{"lvol_name": "lvs0/c", "parent_name": "lvs0/old"})
	add("bdev_lvol_set_parent_bdev", p{"lvol_name": "lvs0/c", "parent_name": "outside"})
	add("bdev_lvol_resize", p{"name": "lvs0/v", "size_in_mib": 24})
	add("bdev_lvol_rename", p{"old_name": "lvs0/v", "new_name": "other"})
	add("bdev_lvol_rename", p{"old_name": "lvs0/s", "new_name": "renamed"})
	add("nvmf_subsystem_add_ns", p{"nqn": subsystem, "namespace": p{"bdev_name": "lvs0/v", "nsid": 1}})
	add("nvmf_subsystem_remove_ns", p{"nqn": subsystem, "nsid": 2})
	add("bdev_lvol_set_read_only", p{"name": "lvs0/c"})
	add("bdev_lvol_start_shallow_copy", p{"src_lvol_name": "lvs0/s", "dst_bdev_name": "copy"})
	add("bdev_lvol_grow_lvstore", p{"lvs_name": "lvs0"})
	add("bdev_lvol_rename_lvstore", p{"old_name": "lvs0", "new_name": "lvs1"})
	add("bdev_lvol_delete_lvstore", p{"lvs_name": "lvs0"})
	return list
}

// A testbed is a target with a proxy. Pairs of operations run on it.
type testbed struct {
	t      *testing.T
	dir    string
	caller spdkrpc.Caller // makes calls through the proxy
	direct *spdkrpc.Client
	free   uint64 // number of free clusters in the empty lvstore
}

// call makes a call through the proxy, and retries it while the target is busy.
func (f *testbed) call(method string, params p, result any) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		err := f.caller.Call(f.t.Context(), method, params, result)
		if refusedAsBusy(err) {
			return false
		}
		require.NoError(f.t, err, "%s %v", method, params)
		return true
	}, time.Minute, 20*time.Millisecond, "%s %v", method, params)
}

// refusedAsBusy reports whether the proxy refused a call because another one is running.
func refusedAsBusy(err error) bool {
	var refused *spdkrpc.Error
	return errors.As(err, &refused) && refused.Code == jsonrpc.CodeTooMany
}

func (f *testbed) createDisks() {
	for name, mib := range map[string]int64{"base": 512, "copy": 64, "outside": 16} {
		path := filepath.Join(f.dir, name)
		require.NoError(f.t, os.WriteFile(path, nil, 0o600))
		require.NoError(f.t, os.Truncate(path, mib<<20))
		f.openDisk(name)
	}
	f.call("nvmf_create_subsystem", p{"nqn": subsystem, "allow_any_host": true}, nil)
}

func (f *testbed) openDisk(name string) {
	f.call("bdev_aio_create", p{"filename": filepath.Join(f.dir, name), "name": name, "block_size": 4096}, nil)
}

func (f *testbed) lvstores() []spdkrpc.LvolStore {
	stores, err := f.direct.BdevLvolGetLvstores(f.t.Context(), spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(f.t, err)
	return stores
}

// prepare creates the volumes for a pair. Hosts may connect to the volume and, if exported is set,
// to the clone.
func (f *testbed) prepare(exported bool) {
	if len(f.lvstores()) == 0 {
		f.call("bdev_lvol_create_lvstore", p{"bdev_name": "base", "lvs_name": "lvs0", "cluster_sz": 1 << 20, "clear_method": "none"}, nil)
		f.free = f.lvstores()[0].FreeClusters
	}
	f.call("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v", "size_in_mib": 16, "clear_method": "none"}, nil)
	f.call("bdev_lvol_snapshot", p{"lvol_name": "lvs0/v", "snapshot_name": "old"}, nil)
	f.call("bdev_lvol_inflate", p{"name": "lvs0/v"}, nil)
	f.call("bdev_lvol_delete", p{"name": "lvs0/v"}, nil)
	f.call("bdev_lvol_clone", p{"snapshot_name": "lvs0/old", "clone_name": "v"}, nil)
	f.call("bdev_lvol_snapshot", p{"lvol_name": "lvs0/v", "snapshot_name": "s"}, nil)
	f.call("bdev_lvol_clone", p{"snapshot_name": "lvs0/s", "clone_name": "c"}, nil)
	if exported {
		f.call("nvmf_subsystem_add_ns", p{"nqn": subsystem, "namespace": p{"bdev_name": "lvs0/c", "nsid": 2}}, nil)
		f.call("nvmf_subsystem_add_ns", p{"nqn": subsystem, "namespace": p{"bdev_name": "lvs0/v", "nsid": 3}}, nil)
	}
}

// run runs two operations concurrently, the second one after a delay, and returns the problems that
// it finds afterwards. Problems are space that no listed volume uses, a deleted volume that is
// still listed, or a difference after the lvstore has been reloaded.
func (f *testbed) run(pair [2]operation, delay time.Duration, exported bool) string {
	f.t.Helper()
	f.prepare(exported)
	var outcomes [2]error
	var both sync.WaitGroup
	for i, o := range pair {
		both.Go(func() {
			time.Sleep(time.Duration(i) * delay)
			outcomes[i] = f.caller.Call(f.t.Context(), o.method, o.params, nil)
		})
	}
	both.Wait()
	text := fmt.Sprintf("%s: %v; %s: %v (after %s, exported %t)", pair[0], outcomes[0], pair[1], outcomes[1], delay, exported)
	for _, err := range outcomes {
		dead := errors.Is(err, spdkrpc.OutcomeUnknown) || errors.Is(err, spdkrpc.Unreachable) && !refusedAsBusy(err)
		require.False(f.t, dead, "the target has died: %s", text)
	}
	wrong := append(f.checkListed(pair, outcomes), f.checkAllocated()...)
	copying := strings.Contains(text, "shallow_copy") // the copy may still be running
	if !copying {
		wrong = append(wrong, f.reload()...)
	}
	f.clear()
	if copying {
		wrong = append(wrong, f.reload()...)
	}
	if stores := f.lvstores(); len(stores) == 1 && stores[0].FreeClusters != f.free {
		wrong = append(wrong, fmt.Sprintf("%d clusters leaked", f.free-stores[0].FreeClusters))
		f.call("bdev_lvol_delete_lvstore", p{"lvs_name": "lvs0"}, nil)
	}
	if len(wrong) == 0 {
		return ""
	}
	return strings.Join(wrong, ", ") + ": " + text
}

// checkListed compares the outcomes of deletions with the list of volumes.
func (f *testbed) checkListed(pair [2]operation, outcomes [2]error) (wrong []string) {
	volumes, err := f.direct.BdevLvolGetLvols(f.t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(f.t, err)
	for i, o := range pair {
		other := pair[1-i]
		if o.gone == "" || other.gone == o.gone || strings.Contains(other.method, "lvstore") || other.method == "bdev_lvol_rename" {
			continue
		}
		listed := slices.ContainsFunc(volumes, func(l spdkrpc.LvolInfo) bool { return l.Alias == o.gone })
		if deleted := outcomes[i] == nil; deleted == listed {
			wrong = append(wrong, fmt.Sprintf("%s returned %v, and the volume is listed: %t", o, outcomes[i], listed))
		}
	}
	return wrong
}

// checkAllocated finds volumes that are not thin but lack clusters, on releases that count them.
func (f *testbed) checkAllocated() (wrong []string) {
	bdevs, err := f.direct.BdevGetBdevs(f.t.Context(), spdkrpc.BdevGetBdevsParams{})
	require.NoError(f.t, err)
	for _, b := range bdevs {
		l := b.DriverSpecific.Lvol
		if l == nil || l.NumAllocatedClusters == nil || l.ThinProvision == nil || *l.ThinProvision || l.Snapshot != nil && *l.Snapshot {
			continue
		}
		if all := uint64(b.NumBlocks) * uint64(b.BlockSize) >> 20; *l.NumAllocatedClusters != all {
			wrong = append(wrong, fmt.Sprintf("%v has %d of %d clusters", b.Aliases, *l.NumAllocatedClusters, all))
		}
	}
	return wrong
}

// reload unloads the lvstore and loads it from its disk again. The result lists the differences
// between the lvstore before and after.
func (f *testbed) reload() (wrong []string) {
	read := func() string {
		volumes, err := f.direct.BdevLvolGetLvols(f.t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
		require.NoError(f.t, err)
		var lines []string
		for _, v := range volumes {
			lines = append(lines, fmt.Sprintf("%s %s", v.Alias, v.UUID))
		}
		for _, s := range f.lvstores() {
			lines = append(lines, fmt.Sprintf("%s with %d free clusters", s.Name, s.FreeClusters))
		}
		slices.Sort(lines)
		return strings.Join(lines, ", ")
	}
	before := read()
	f.call("bdev_aio_delete", p{"name": "base"}, nil)
	f.openDisk("base")
	f.call("bdev_wait_for_examine", p{}, nil)
	if after := read(); after != before {
		wrong = append(wrong, fmt.Sprintf("after loading: [%s] instead of [%s]", after, before))
	}
	return wrong
}

// clear deletes all volumes, and restores the lvstore's name.
func (f *testbed) clear() {
	if stores := f.lvstores(); len(stores) == 1 && stores[0].Name != "lvs0" {
		f.call("bdev_lvol_rename_lvstore", p{"old_name": stores[0].Name, "new_name": "lvs0"}, nil)
	}
	for range 20 {
		volumes, err := f.direct.BdevLvolGetLvols(f.t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
		require.NoError(f.t, err)
		if len(volumes) == 0 {
			return
		}
		for _, v := range slices.Backward(volumes) {
			_ = f.caller.Call(f.t.Context(), "bdev_lvol_delete", p{"name": v.UUID}, nil) // a snapshot with two clones is refused
		}
	}
	f.t.Fatal("volumes cannot be deleted")
}

// runAll runs pairs on a target until all rounds are complete, or the time limit is reached. Each
// round runs the first pairs of a new random order. In half of the pairs, the second operation
// begins up to longest later.
func (f *testbed) runAll(rounds, first int, longest time.Duration) {
	f.createDisks()
	defer f.call("nvmf_delete_subsystem", p{"nqn": subsystem}, nil)
	var pairs [][2]operation
	for _, a := range operations() {
		for _, b := range operations() {
			pairs = append(pairs, [2]operation{a, b})
		}
	}
	first = min(first, len(pairs))
	var tried int
	var wrong []string
	defer func() {
		f.t.Logf("%d of %d pairs, %d wrong", tried, rounds*first, len(wrong))
		assert.Empty(f.t, wrong[:min(len(wrong), 20)])
	}()
	end, limited := f.t.Deadline()
	for range rounds {
		rand.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		for _, pair := range pairs[:first] {
			if limited && time.Until(end) < time.Minute {
				return
			}
			delay := time.Duration(rand.IntN(2)) * time.Duration(rand.Int64N(int64(longest)))
			if w := f.run(pair, delay, rand.IntN(2) == 0); w != "" {
				wrong = append(wrong, w)
			}
			tried++
		}
	}
}

// The simulation is configured so that an operation on a volume takes several milliseconds.
func TestPairsOfOperationsOnSimulatedTarget(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release), Work: 2 * time.Millisecond})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, target.Close()) })
			f := newFarm(t, target.Socket())
			f.runAll(1, 200, 4*time.Millisecond)
			require.NoError(t, target.Restart())
		})
	}
}

// TestPairsOfOperationsOnRealTarget runs on the target at SPDK_SOCK.
func TestPairsOfOperationsOnRealTarget(t *testing.T) {
	f := newFarm(t, realtarget.Socket(t))
	f.runAll(2, math.MaxInt, 30*time.Millisecond)
}

func newFarm(t *testing.T, socket string) *testbed {
	https, _ := serveProxy(t, socket)
	direct := spdkrpc.NewSocket(socket)
	t.Cleanup(func() { _ = direct.Close() })
	direct.SetLimits(jsonrpc.LimitsV2605)
	return &testbed{t: t, dir: t.TempDir(), caller: https, direct: spdkrpc.NewClient(direct)}
}
