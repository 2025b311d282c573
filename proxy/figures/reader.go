package figures

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Ask makes one call to the target.
type Ask func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// A Target is the state of a target, as a Reader needs to know it before it reads.
type Target struct {
	Up       bool   // whether the target responds, and is past its startup
	Phase    string // copied into Figures
	Release  rpcschema.Release
	Restarts int
	Ask      Ask
}

// A Reader reads the figures of one target. It is not safe for concurrent use.
type Reader struct {
	schema *rpcschema.Document
	now    func() time.Time
	// after a call that took time t, the method is not called again for share times t
	share  time.Duration
	ioOnly bool
	names  []string // bdevs with histograms to be read

	target   Target
	last     map[string]asked
	calls    int
	failures []Failure
	down     bool

	stores   []Store
	volumes  []Volume
	clock    float64             // the target's clock when it last returned I/O statistics, in seconds
	index    map[string]int      // index into volumes by UUID
	others   map[string]struct{} // bdevs that are not volumes; nil if the volumes have just been listed
	listed   bool                // whether the volumes have been listed
	sizes    map[string]size     // by UUID
	bdevs    []Bdev
	nvmf     NVMf
	iscsi    ISCSI
	reactors []Reactor
	uptime   float64
	buffers  []BufferPool
	threads  []Thread
	pollers  []Poller
	started  time.Time

	histograms []Histogram
	next       int // index into names of the histogram to read next
}

// asked records the last call of a method.
type asked struct {
	at     time.Time
	took   time.Duration
	absent bool // whether this target lacks the method
}

// NewReader returns a Reader that also reads the latency histograms of the named bdevs. A name is
// either a name in SPDK's list of bdevs or LVSTORE/LVOL.
func NewReader(schema *rpcschema.Document, histograms ...string) *Reader {
	return &Reader{schema: schema, now: time.Now, share: share, names: histograms}
}

// NewIOReader returns a Reader that reads only the I/O of volumes and other bdevs, for a person who
// is watching interactively. After a call that took time t, the Reader waits 4 t before it repeats
// the call.
func NewIOReader(schema *rpcschema.Document) *Reader {
	return &Reader{schema: schema, now: time.Now, share: 4, ioOnly: true}
}

// These constants control how often methods are called. Lists that grow with the number of volumes
// are read rarely, because they change slowly.
const (
	// listEvery is the interval for lists of objects.
	listEvery = time.Minute
	// sizesEvery is the interval for the list of bdevs, which is the longest list and is needed
	// only for volumes' sizes. If a size is unknown, the list is read earlier, but at most once
	// every listEvery.
	sizesEvery = 10 * time.Minute
	// share is the default value of Reader.share.
	share = 100
)

// Read reads the figures. Calls end early when ctx ends.
func (r *Reader) Read(ctx context.Context, t Target) *Figures {
	began := r.now()
	if r.last == nil || r.target.Release != t.Release || r.target.Restarts != t.Restarts || !t.Up {
		*r = Reader{schema: r.schema, now: r.now, share: r.share, ioOnly: r.ioOnly, names: r.names, last: map[string]asked{}, sizes: map[string]size{}}
	}
	r.target, r.calls, r.failures, r.down = t, 0, nil, false
	f := &Figures{Phase: t.Phase, Restarts: t.Restarts}
	if t.Release.Known() {
		f.Release = t.Release.String()
	}
	if t.Up {
		r.readAll(ctx, began)
	}
	f.Taken, f.Calls, f.Failures = r.now(), r.calls, r.failures
	f.Took = f.Taken.Sub(began)
	if r.down {
		f.Phase = "unreachable"
	}
	if !t.Up || r.down {
		return f
	}
	f.Up, f.Started, f.Clock = true, r.startOf(), r.clock
	f.Volumes = append([]Volume{}, r.volumes...)
	f.Stores = r.summed()
	f.Histograms = r.histograms
	f.Bdevs, f.NVMf, f.ISCSI, f.Reactors, f.Buffers, f.Threads, f.Pollers = r.bdevs, r.nvmf, r.iscsi, r.reactors, r.buffers, r.threads, r.pollers
	return f
}

// readAll makes the calls that are due, one after another.
func (r *Reader) readAll(ctx context.Context, began time.Time) {
	if !r.ioOnly {
		r.call(ctx, "framework_get_reactors", 0, r.readReactors)
	}
	r.call(ctx, "bdev_lvol_get_lvstores", 0, r.readStores)
	if len(r.stores) > 0 {
		r.call(ctx, "bdev_lvol_get_lvols", listEvery, r.readVolumes)
	} else {
		r.volumes, r.index = nil, nil
	}
	unknown := false
	r.call(ctx, "bdev_get_iostat", 0, func(raw json.RawMessage) (err error) {
		unknown, err = r.readIO(raw)
		return err
	})
	if unknown && len(r.stores) > 0 { // there are new bdevs, which may be volumes
		if r.last["bdev_lvol_get_lvols"].at.Before(began) {
			r.call(ctx, "bdev_lvol_get_lvols", 0, r.readVolumes)
		}
		r.settle()
	}
	if r.ioOnly {
		return
	}
	if len(r.volumes) > 0 {
		every := sizesEvery // in some releases, only the list of bdevs contains volumes' allocated clusters
		if r.unsized() || r.target.Release.Has(rpcschema.CountsClusters) && !r.target.Release.Has(rpcschema.ListsClusters) {
			every = listEvery
		}
		r.call(ctx, "bdev_get_bdevs", every, r.readSizes)
	}
	r.call(ctx, "nvmf_get_stats", 0, r.readNVMfStats)
	r.call(ctx, "nvmf_get_subsystems", listEvery, r.readSubsystems)
	r.call(ctx, "iscsi_get_target_nodes", listEvery, r.readTargetNodes)
	if r.iscsi.TargetNodes > 0 {
		r.call(ctx, "iscsi_get_connections", 0, r.readISCSIConnections)
	} else {
		r.iscsi.Connections = 0
	}
	r.call(ctx, "iobuf_get_stats", 0, r.readBuffers)
	r.call(ctx, "thread_get_stats", 0, r.readThreads)
	r.call(ctx, "thread_get_pollers", listEvery, r.readPollers)
	r.readHistogram(ctx)
}

// call makes a call without parameters, if it is due, and parses its result.
func (r *Reader) call(ctx context.Context, method string, every time.Duration, read func(json.RawMessage) error) {
	_, _ = r.callFor(ctx, method, "", every, read) // the error is recorded as a failure
}

// callFor makes a call, if it is due, and parses its result. bdev is the bdev that the call names,
// or "". made reports whether the call was due. If the call failed, err is the reason.
func (r *Reader) callFor(ctx context.Context, method, bdev string, every time.Duration, read func(json.RawMessage) error) (made bool, err error) {
	key, params := method, map[string]any(nil)
	if bdev != "" {
		key, params = method+" "+bdev, map[string]any{"name": bdev}
	}
	last, before := r.last[key]
	if r.down || last.absent || before && r.now().Sub(last.at) < max(every, r.share*last.took) {
		return false, nil
	}
	if _, err := r.schema.Find(method, r.target.Release); err != nil {
		r.last[key] = asked{absent: true}
		return false, nil
	}
	began := r.now()
	raw, err := r.target.Ask(ctx, method, params)
	r.calls++
	r.last[key] = asked{at: began, took: r.now().Sub(began)}
	if err == nil {
		err = read(raw)
	}
	if err == nil {
		return true, nil
	}
	switch spdkrpc.KindOf(err) {
	case spdkrpc.MethodNotFound: // the target was built without this method
		r.last[key] = asked{absent: true}
		return false, nil
	case spdkrpc.Unreachable, spdkrpc.OutcomeUnknown:
		r.down = !errors.Is(err, context.DeadlineExceeded)
	}
	if ctx.Err() != nil {
		r.down = true
	}
	r.failures = append(r.failures, Failure{method, err})
	return true, err
}

// startOf returns when the target started. The result remains stable while the target's clock
// deviates from it by only seconds.
func (r *Reader) startOf() time.Time {
	if r.uptime == 0 {
		return r.started
	}
	start := r.last["framework_get_reactors"].at.Add(-time.Duration(r.uptime * float64(time.Second))).Truncate(time.Second)
	if r.started.IsZero() || start.Sub(r.started).Abs() > 5*time.Second {
		r.started = start
	}
	return r.started
}
