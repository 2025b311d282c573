package quiesce

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Options of a Quiescer.
type Options struct {
	Folder  *Folder // of the journal; nil: what is in use cannot be frozen
	At      Place
	Connect Connect
	// Process names the process behind a socket, without asking it. Another process
	// has another name.
	Process func(socket string) (string, error)
	// Deleting waits until a target of a release may delete volumes, and keeps away until leave what it does not bear
	// meanwhile. nil: it bears everything.
	Deleting func(ctx context.Context, r rpcschema.Release) (leave func(), err error)
	Log      *slog.Logger
	Watch    Watch
	// Leave leaves the entries of what was thawed to be counted by a Quiescer that
	// runs.
	Leave bool
}

// Watch is told what happens, for the metrics. What is nil is not told.
type Watch struct {
	Froze     func(took time.Duration, overdue bool) // from the first path that was to become inaccessible until all were back, or were left to recovery
	Refused   func()                                 // an operation on a volume in use
	Recovered func(operations int)                   // thawed by whoever did not freeze them
}

// A Quiescer changes volumes that may be in use, and thaws what was left frozen. It may be used
// concurrently.
type Quiescer struct {
	opts  Options
	gate  gate
	slots chan struct{}
	wake  chan struct{} // something is left to recovery
	grace time.Duration // see makingGrace

	unmade sync.Map          // entries of operations that surely are not under way
	told   map[string]string // by entry: the error that was logged last; of whoever recovers
}

const (
	maxAtOnce = 8 // operations, each with a connection of its own; SPDK has 64 for everybody
	// overdue is how long hosts hold their I/O back before somebody should know.
	overdue = 2 * time.Second
)

// New makes a Quiescer. Nothing is recovered before Run.
func New(o Options) *Quiescer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Deleting == nil {
		o.Deleting = func(context.Context, rpcschema.Release) (func(), error) { return func() {}, nil }
	}
	if o.Watch.Froze == nil {
		o.Watch.Froze = func(time.Duration, bool) {}
	}
	if o.Watch.Refused == nil {
		o.Watch.Refused = func() {}
	}
	if o.Watch.Recovered == nil {
		o.Watch.Recovered = func(int) {}
	}
	return &Quiescer{opts: o, slots: make(chan struct{}, maxAtOnce), wake: make(chan struct{}, 1), told: map[string]string{}, grace: makingGrace}
}

// Share holds operations on objects back while a call changes them, and that call
// until operations under way have ended. Names are NQNs, and names and aliases of
// bdevs. The error is a *BusyError, or that of ctx.
func (q *Quiescer) Share(ctx context.Context, names []string) (give func(), err error) {
	if len(names) == 0 {
		return func() {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, shareWithin)
	defer cancel()
	give, err = q.gate.share(bounded, names)
	if err != nil && ctx.Err() == nil {
		return nil, &BusyError{Why: "this volume is frozen, or kept as it is, by another call"}
	}
	return give, err
}

const shareWithin = 5 * time.Second

// own takes objects for an operation.
func (q *Quiescer) own(ctx context.Context, names []string) (give func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	give, err = q.gate.own(bounded, names)
	if err != nil && ctx.Err() == nil {
		return nil, &BusyError{Why: "another call that changes the volume, or its export, is under way"}
	}
	return give, err
}

// deleting prepares for the deletion of volumes. What waits for it to end waits outside: nothing is frozen yet.
func (q *Quiescer) deleting(ctx context.Context, t *Target) (leave func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	leave, err = q.opts.Deleting(bounded, t.Release)
	if err != nil && ctx.Err() == nil {
		return nil, &BusyError{Why: "volumes are being listed, and this release of SPDK crashes when one is deleted meanwhile", Err: err}
	}
	return leave, err
}

// holds are gates that an operation holds until its end.
type holds struct {
	mu   sync.Mutex
	list []func()
}

func (h *holds) add(give func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, give)
}

func (h *holds) giveAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, give := range h.list {
		give()
	}
	h.list = nil
}
