package changes

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

var besideFor = flag.Duration("beside", 30*time.Second, "duration of the concurrent operations for each base")

const besideConfig = `listen: %[1]s
tls: {insecure_plaintext: true}
target: {socket: %[2]s/spdk.sock, save: {dir: %[2]s/saved}, accept_loading_what_hosts_write: true, accept_changes_without_counts: true, freeze: {dir: %[2]s/frozen}}
users:
  - {name: admin, password_hash: %[3]q, roles: [admin]}
  - {name: backup, password_hash: %[3]q, roles: [admin]}
log: {format: text, level: warn}
`

// Lists are complete while other clients take, clone, inflate, decouple and delete snapshots of the
// same chains, and while the target is killed and started with the saved configuration.
func TestChangesBesideConcurrentOperations(t *testing.T) {
	for _, kind := range []string{"aio", "nvme"} {
		t.Run(kind, func(t *testing.T) {
			w := newConcurrent(t, kind)
			w.run(*besideFor)
			logTotals(t, w.stat, w.refused)
		})
	}
}

// A concurrent is a testbed whose operations may fail at any time, because the target is killed
// during them.
type concurrent struct {
	*testbed
	names   atomic.Int64
	stop    atomic.Bool
	clients []*proxy // of users with their own limits
}

func newConcurrent(t *testing.T, kind string) *concurrent {
	image := newImage(t, 512*mib)
	far := ""
	if kind == "nvme" {
		far = newFarTarget(t, image)
	}
	g := newTarget(t, func(*target) {})
	w := &concurrent{testbed: &testbed{target: g, t: t, rnd: rand.New(rand.NewSource(*seed)), snaps: map[string]*snapshot{}, stat: map[string]int{}, refused: map[int]map[string]int{}}}
	w.release = w.targetRelease()
	w.proxy = startProxyWith(g, besideConfig)
	w.clients = []*proxy{w.proxy, w.proxy.as(t, "backup")}
	bdev := disk
	if kind == "nvme" {
		bdev += "n1"
		host, port, _ := strings.Cut(far, ":")
		w.through("bdev_nvme_attach_controller", p{"name": disk, "trtype": "TCP", "adrfam": "IPv4", "traddr": host, "trsvcid": port, "subnqn": farNQN})
	} else {
		w.through("bdev_aio_create", p{"name": disk, "filename": image, "block_size": 4096})
	}
	w.through("bdev_lvol_create_lvstore", p{"bdev_name": bdev, "lvs_name": "lvs0", "cluster_sz": cluster, "num_md_pages_per_cluster_ratio": 4})
	w.through("nvmf_create_transport", p{"trtype": "TCP"})
	return w
}

func (w *concurrent) through(method string, params p) {
	require.NoError(w.t, w.proxy.call(method, params, nil), method)
}

func (w *concurrent) name(prefix string) string { return fmt.Sprint(prefix, w.names.Add(1)) }

// try makes a call, and counts how it ended.
func (w *concurrent) try(method string, params p, result any) error {
	err := w.proxy.call(method, params, result)
	if err != nil {
		w.count(method + " failed")
	} else {
		w.count(method)
	}
	return err
}

// run runs all clients at the same time for a while, and then compares all snapshots.
func (w *concurrent) run(d time.Duration) {
	var all sync.WaitGroup
	for _, client := range []func(r *rand.Rand){w.writer, w.writer, w.deleter, w.cloner, w.cloner, w.reader, w.reader, w.reader, w.reader} {
		r := rand.New(rand.NewSource(w.rnd.Int63()))
		all.Go(func() {
			for !w.stop.Load() {
				client(r)
			}
		})
	}
	for began := time.Now(); time.Since(began) < d; {
		time.Sleep(time.Second + time.Duration(w.rnd.Int63n(int64(6*time.Second))))
		w.restartSaved()
	}
	w.stop.Store(true)
	all.Wait()
	w.restartSaved()
	w.quiet = true
	during := w.refused
	w.refused = map[int]map[string]int{}
	for _, s := range w.list() {
		content, err := w.read(s.uuid)
		require.NoError(w.t, err)
		assert.True(w.t, bytes.Equal(s.content, content), "the content of snapshot %s has changed", s.uuid)
	}
	w.verifyAll()
	w.refused = during
}

// restartSaved kills the target, and starts it with the configuration that the proxy has saved.
func (w *concurrent) restartSaved() {
	w.kill()
	w.args = []string{"-c", filepath.Join(w.dir, "saved/current.json"), "--json-ignore-init-errors"}
	w.start()
	require.Eventually(w.t, func() bool { // the target loads its configuration after it has begun to respond
		var stores []spdkrpc.LvolStore
		return w.proxy.call("bdev_lvol_get_lvstores", nil, &stores) == nil && len(stores) == 1
	}, long, 10*time.Millisecond)
	w.count("target killed")
	var subsystems []spdkrpc.NVMfSubsystem
	w.must("nvmf_get_subsystems", nil, &subsystems)
	for _, s := range subsystems {
		if !strings.Contains(s.NQN, "discovery") {
			_ = w.proxy.call("nvmf_delete_subsystem", p{"nqn": s.NQN}, nil)
		}
	}
	var lvols []spdkrpc.BdevInfo
	w.must("bdev_get_bdevs", nil, &lvols)
	w.mu.Lock()
	known := map[string]bool{}
	for uuid := range w.snaps {
		known[uuid] = true
	}
	w.mu.Unlock()
	for _, b := range lvols { // what unfinished operations have left
		if b.DriverSpecific.Lvol != nil && !known[b.UUID] && !w.stop.Load() && w.rnd.Intn(2) == 0 {
			_ = w.proxy.call("spdkgate_lvol_delete", p{"name": b.UUID}, nil)
		}
	}
}

// export exports a bdev, and connects to it. end undoes both.
func (w *concurrent) export(bdev string) (nqn string, h hosts, end func(), err error) {
	nqn = "nqn.2026-11.io.spdkgate.test:" + w.name("beside")
	call := func(method string, params p) {
		if err == nil {
			params["nqn"] = nqn
			err = w.proxy.call(method, params, nil)
		}
	}
	port := freePort(w.t)
	call("nvmf_create_subsystem", p{"allow_any_host": true, "ana_reporting": true, "serial_number": "CHANGES"})
	call("nvmf_subsystem_add_ns", p{"namespace": p{"bdev_name": bdev, "nsid": 1}})
	call("nvmf_subsystem_add_listener", p{"listen_address": p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}})
	if err == nil {
		h, err = connect(initiator.Target{Address: "127.0.0.1:" + port, NQN: nqn, HostNQN: hostNQN})
	}
	end = func() {
		_ = h.close()
		_ = w.proxy.call("nvmf_delete_subsystem", p{"nqn": nqn}, nil)
	}
	if err != nil {
		end()
	}
	return nqn, h, end, err
}

// read returns the content of a bdev.
func (w *concurrent) read(bdev string) ([]byte, error) {
	_, h, end, err := w.export(bdev)
	if err != nil {
		return nil, err
	}
	defer end()
	b := make([]byte, h[0].Bytes())
	var reads []func(d *initiator.Device) error
	for at := 0; at < len(b); at += 128 << 10 {
		reads = append(reads, func(d *initiator.Device) error {
			_, err := d.ReadAt(b[at:min(at+128<<10, len(b))], int64(at))
			return err
		})
	}
	return b, h.run(reads)
}

// snapshot takes a snapshot of an exported volume, and registers it with its content.
func (w *concurrent) snapshot(volume, nqn string) {
	var made []spdkrpc.ProxySnapshot
	if w.try("spdkgate_lvol_snapshot", p{"snapshots": []p{{"lvol_name": volume, "snapshot_name": w.name("s"), "nqn": nqn}}}, &made) != nil {
		return
	}
	content, err := w.read(made[0].UUID)
	if err != nil {
		w.count("snapshots not read")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snaps[made[0].UUID] = &snapshot{made[0].UUID, content}
	w.stat["snapshots"]++
}

// writer creates a volume, writes to it and takes snapshots until something fails.
func (w *concurrent) writer(r *rand.Rand) {
	var uuid string
	if err := w.try("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": w.name("v"), "size_in_mib": volumeMiB, "thin_provision": r.Intn(4) > 0}, &uuid); err != nil {
		time.Sleep(20 * time.Millisecond)
		return
	}
	defer func() { _ = w.try("bdev_lvol_delete", p{"name": uuid}, nil) }()
	nqn, h, end, err := w.export(uuid)
	if err != nil {
		return
	}
	defer end()
	for range 30 {
		var writing sync.WaitGroup
		var failed error
		commands := randomWrites(h[0].Bytes(), 5+r.Intn(40), r)
		writing.Go(func() { failed = h.run(commands) })
		if len(w.list()) < maxTaken {
			w.snapshot(uuid, nqn)
		}
		writing.Wait()
		if failed != nil || w.stop.Load() {
			return
		}
	}
}

// cloner clones a snapshot, writes to the clone, takes a snapshot of it, and inflates, decouples or
// deletes it.
func (w *concurrent) cloner(r *rand.Rand) {
	list := w.list()
	if len(list) == 0 {
		time.Sleep(20 * time.Millisecond)
		return
	}
	var uuid string
	if err := w.try("bdev_lvol_clone", p{"snapshot_name": pick(r, list).uuid, "clone_name": w.name("c")}, &uuid); err != nil {
		time.Sleep(20 * time.Millisecond)
		return
	}
	if nqn, h, end, err := w.export(uuid); err == nil {
		if h.run(randomWrites(h[0].Bytes(), 1+r.Intn(20), r)) == nil && len(list) < maxTaken {
			w.snapshot(uuid, nqn)
		}
		end()
	}
	for range r.Intn(3) {
		_ = w.try(pick(r, []string{"bdev_lvol_inflate", "bdev_lvol_decouple_parent"}), p{"name": uuid}, nil)
	}
	_ = w.try("bdev_lvol_delete", p{"name": uuid}, nil)
}

// deleter deletes a snapshot.
func (w *concurrent) deleter(r *rand.Rand) {
	time.Sleep(time.Duration(r.Intn(200)) * time.Millisecond)
	list := w.list()
	if len(list) < maxTaken/3 {
		return
	}
	s := pick(r, list)
	w.mu.Lock()
	delete(w.snaps, s.uuid)
	w.mu.Unlock()
	var rpc *spdkrpc.Error
	if errors.As(w.try("spdkgate_lvol_delete", p{"name": s.uuid}, nil), &rpc) && (rpc.Code == -32029 || rpc.Code == -32009) { // not executed
		w.mu.Lock()
		w.snaps[s.uuid] = s
		w.mu.Unlock()
	}
}

// reader compares the list of changes between two snapshots with their contents.
func (w *concurrent) reader(r *rand.Rand) {
	list := w.list()
	if len(list) == 0 {
		time.Sleep(20 * time.Millisecond)
		return
	}
	q, s := p{}, pick(r, list)
	q["snapshot"] = s.uuid
	kind, base := "all", (*snapshot)(nil)
	if r.Intn(4) > 0 {
		kind, base = "pairs", pick(r, list)
		q["base"] = base.uuid
	}
	var result spdkrpc.ProxyLvolChanges
	err := pick(r, w.clients).call("spdkgate_lvol_changes", q, &result)
	var changed []bool
	if err == nil {
		changed, err = listOf(result, s)
	}
	if w.checkResult(kind, s, base, changed, err) {
		time.Sleep(10 * time.Millisecond)
	}
}
