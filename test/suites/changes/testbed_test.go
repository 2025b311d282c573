package changes

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

const (
	cluster    = 16 << 10
	volumeMiB  = 8
	maxVolumes = 3
	maxTaken   = 30
)

// A volume is an exported logical volume.
type volume struct {
	uuid  string
	nqn   string
	hosts hosts
}

// A snapshot is a snapshot on the target with its expected contents.
type snapshot struct {
	uuid    string
	content []byte
}

// A testbed is a target with volumes and snapshots, together with their expected state.
type testbed struct {
	*target
	t       *testing.T
	base    base
	proxy   *proxy
	rnd     *rand.Rand
	release rpcschema.Release
	vols    []*volume
	n       int
	other   []string // the program of another release, which each kill starts instead
	quiet   bool     // nothing else uses the target, so an interrupted call is repeated

	mu      sync.Mutex
	snaps   map[string]*snapshot
	stat    map[string]int
	refused map[int]map[string]int // texts of errors by code
}

func newTestbed(t *testing.T, kind string, seed int64) *testbed {
	// After a kill, the next target process reads all metadata pages one by one, and targets may
	// share a core. An lvstore that grows needs more pages.
	metadata := 2
	if kind == "aio" {
		metadata = 20
	}
	g, b := bases[kind](t, 256*mib)
	w := &testbed{target: g, t: t, base: b, rnd: rand.New(rand.NewSource(seed)), snaps: map[string]*snapshot{}, stat: map[string]int{}, refused: map[int]map[string]int{}}
	w.release = w.targetRelease()
	w.must("bdev_lvol_create_lvstore", p{"bdev_name": b.bdev, "lvs_name": "lvs0", "cluster_sz": cluster, "num_md_pages_per_cluster_ratio": metadata}, nil)
	w.proxy = startProxy(g)
	for range 2 {
		w.create()
	}
	return w
}

func (w *testbed) targetRelease() rpcschema.Release {
	var v struct{ Version string }
	w.must("spdk_get_version", nil, &v)
	r, err := rpcschema.ParseRelease(v.Version)
	require.NoError(w.t, err)
	return r
}

func (w *testbed) create() {
	w.n++
	v := &volume{}
	w.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": fmt.Sprint("v", w.n), "size_in_mib": volumeMiB, "thin_provision": w.rnd.Intn(4) > 0}, &v.uuid)
	w.open(v)
	w.vols = append(w.vols, v)
}

const hostNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"

func (w *testbed) connect(bdev string) (nqn string, h hosts) {
	nqn, address := w.share(bdev)
	h, err := connect(initiator.Target{Address: address, NQN: nqn, HostNQN: hostNQN})
	require.NoError(w.t, err)
	return nqn, h
}

func (w *testbed) open(v *volume) { v.nqn, v.hosts = w.connect(v.uuid) }

func (w *testbed) shut(v *volume) {
	require.NoError(w.t, v.hosts.close())
	w.unshare(v.nqn)
	v.hosts = nil
}

func (w *testbed) content(bdev string) []byte {
	nqn, h := w.connect(bdev)
	b := make([]byte, h[0].Bytes())
	var reads []func(d *initiator.Device) error
	for at := 0; at < len(b); at += 128 << 10 {
		reads = append(reads, func(d *initiator.Device) error {
			_, err := d.ReadAt(b[at:min(at+128<<10, len(b))], int64(at))
			return err
		})
	}
	require.NoError(w.t, h.run(reads))
	require.NoError(w.t, h.close())
	w.unshare(nqn)
	return b
}

// write makes random writes, trims and zero writes to a volume.
func (w *testbed) write(v *volume, times int, rnd *rand.Rand) {
	require.NoError(w.t, v.hosts.run(randomWrites(v.hosts[0].Bytes(), times, rnd)))
}

func randomWrites(span int64, times int, rnd *rand.Rand) []func(d *initiator.Device) error {
	if rnd.Intn(3) > 0 {
		span /= 4
	}
	var writes []func(d *initiator.Device) error
	for range times {
		length := int64(1+rnd.Intn(12)) * 4096
		at := rnd.Int63n(span-length) &^ 4095
		switch rnd.Intn(10) {
		case 0:
			writes = append(writes, func(d *initiator.Device) error {
				_ = d.Deallocate(at/cluster*cluster, cluster)
				return nil
			})
		case 1:
			writes = append(writes, func(d *initiator.Device) error {
				_ = d.WriteZeroes(at, length)
				return nil
			})
		default:
			b := make([]byte, length)
			_, _ = rnd.Read(b)
			writes = append(writes, func(d *initiator.Device) error {
				_, err := d.WriteAt(b, at)
				return err
			})
		}
	}
	return writes
}

// take takes a snapshot of a volume while the volume is being written to.
func (w *testbed) take(v *volume) {
	w.n++
	var writing sync.WaitGroup
	seed := w.rnd.Int63()
	writing.Go(func() { w.write(v, 20, rand.New(rand.NewSource(seed))) })
	var made []spdkrpc.ProxySnapshot
	err := w.retry("spdkgate_lvol_snapshot", p{"snapshots": []p{{"lvol_name": v.uuid, "snapshot_name": fmt.Sprint("s", w.n), "nqn": v.nqn}}}, &made)
	writing.Wait()
	require.NoError(w.t, err)
	s := &snapshot{made[0].UUID, w.content(made[0].UUID)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snaps[s.uuid] = s
	w.stat["snapshots"]++
}

// retry repeats a call through the proxy until the volume is no longer busy. On a busy machine,
// freezing a volume, or reading metadata from another target, can take longer than the proxy
// allows.
func (w *testbed) retry(method string, params, result any) (err error) {
	for began := time.Now(); time.Since(began) < long; time.Sleep(100 * time.Millisecond) {
		var rpc *spdkrpc.Error
		if err = w.proxy.call(method, params, result); !errors.As(err, &rpc) || rpc.Code != -32029 {
			return err
		}
		w.count("retried")
	}
	return err
}

func (w *testbed) list() []*snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(maps.Values(w.snaps), func(a, b *snapshot) int { return slices.Compare([]byte(a.uuid), []byte(b.uuid)) })
}

func pick[T any](r *rand.Rand, l []T) T { return l[r.Intn(len(l))] }

// changes queries the changes; base may be nil.
func (w *testbed) changes(s, base *snapshot) ([]bool, error) {
	q := p{"snapshot": s.uuid}
	if base != nil {
		q["base"] = base.uuid
	}
	return w.query(q, s)
}

func (w *testbed) query(q p, s *snapshot) ([]bool, error) {
	var r spdkrpc.ProxyLvolChanges
	call := w.proxy.call
	if w.quiet {
		call = w.retry
	}
	if err := call("spdkgate_lvol_changes", q, &r); err != nil {
		return nil, err
	}
	list, err := listOf(r, s)
	require.NoError(w.t, err)
	return list, nil
}

// listOf returns the clusters in a result for a snapshot.
func listOf(r spdkrpc.ProxyLvolChanges, s *snapshot) ([]bool, error) {
	bitmap, err := base64.StdEncoding.DecodeString(r.Bitmap)
	list := make([]bool, len(s.content)/cluster)
	if err != nil || r.ClusterSize != cluster || r.Size != uint64(len(s.content)) || len(bitmap) != (len(list)+7)/8 {
		return nil, fmt.Errorf("snapshot %s of %d bytes has a list of %d bytes in clusters of %d: %v", s.uuid, len(s.content), r.Size, r.ClusterSize, r.Bitmap)
	}
	for i := range list {
		list[i] = bitmap[i/8]>>(i%8)&1 == 1
	}
	return list, nil
}

// restore copies the listed clusters to the base. It returns the first cluster that differs from
// the snapshot afterwards, or -1 if none does. differ is the number of clusters that differed
// before, and listed is the number of clusters in the list.
func restore(s, base *snapshot, list []bool) (wrong, differ, listed int) {
	image := make([]byte, len(s.content))
	if base != nil {
		copy(image, base.content)
	}
	wrong = -1
	for i, has := range list {
		part, want := image[i*cluster:(i+1)*cluster], s.content[i*cluster:(i+1)*cluster]
		same := string(part) == string(want)
		if !same {
			differ++
		}
		if has {
			listed++
		} else if !same && wrong < 0 {
			wrong = i
		}
	}
	return wrong, differ, listed
}

// compare checks the changes between two snapshots, and counts them.
func (w *testbed) compare(s, base *snapshot) (refused bool) {
	list, err := w.changes(s, base)
	kind := "pairs"
	if base == nil {
		kind = "all"
	}
	return w.checkResult(kind, s, base, list, err)
}

// compareVolume checks an unused volume's allocated clusters, and its changes since each of several
// snapshots.
func (w *testbed) compareVolume(v *volume, bases ...*snapshot) {
	s := &snapshot{v.uuid, w.content(v.uuid)}
	list, err := w.query(p{"snapshot": v.uuid, "allow_volume": true}, s)
	w.checkResult("volumes", s, nil, list, err)
	for _, base := range bases {
		list, err := w.query(p{"snapshot": v.uuid, "base": base.uuid, "allow_volume": true}, s)
		w.checkResult("volumes since a snapshot", s, base, list, err)
	}
}

// checkResult checks and counts the result of a query of the given kind.
func (w *testbed) checkResult(kind string, s, base *snapshot, list []bool, err error) (refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rpc *spdkrpc.Error
	if errors.As(err, &rpc) {
		if w.refused[rpc.Code] == nil {
			w.refused[rpc.Code] = map[string]int{}
		}
		w.refused[rpc.Code][rpc.Message]++
		return true
	}
	require.NoError(w.t, err)
	wrong, differ, listed := restore(s, base, list)
	if wrong >= 0 {
		w.stat["WRONG"]++
		w.t.Errorf("cluster %d of %s is not restored from %v", wrong, s.uuid, base)
	}
	w.stat[kind]++
	w.stat[kind+": clusters that differ"] += differ
	w.stat[kind+": clusters listed"] += listed
	return false
}
