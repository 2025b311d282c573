package quiesce

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Options configures a Quiescer.
type Options struct {
	Folder  *Folder // the journal; if it is nil, operations on volumes in use are refused
	At      Place
	Connect Connect
	// Process returns the name of the process behind a socket without calling the process.
	// Different processes have different names.
	Process func(socket string) (string, error)
	// Deleting waits until volumes may be deleted on a target of this release. Calls that must not
	// run during a deletion then wait until leave is called. If there are no such calls, Deleting
	// is nil.
	Deleting func(ctx context.Context, r rpcschema.Release) (leave func(), err error)
	// Removing durably records that the deletion of a volume is about to begin. It is called before
	// other volumes are frozen for the deletion; end is called after the deletion. If Removing is
	// nil, nothing is recorded. The function plain of Delete records its deletion itself.
	Removing func(ctx context.Context, t *Target, uuid string) (end func(), err error)
	// Enter waits until a user's operation may run. Each operation has its own connection, and SPDK
	// allows 64 in total. awaits means that the operation waits for its client while volumes are
	// frozen, and therefore takes longer. If Enter is nil, any number of operations may run at the
	// same time.
	Enter func(ctx context.Context, user string, awaits bool) (leave func(), err error)
	// HasExtentPage reads from the lvstore's metadata whether an lvol has an extent page with this
	// number. If it is nil, the metadata cannot be read.
	HasExtentPage func(ctx context.Context, rpc *spdkrpc.Client, uuid string, number uint64) (bool, error)
	Log           *slog.Logger
	Observer      Observer
	// Leave means that the files of thawed entries are kept, so that a running Quiescer can count
	// them.
	Leave bool
}

// An Observer contains functions that count events for the metrics. Each function may be nil.
type Observer struct {
	// Froze is called after each freeze with its duration, which ends when all states have been
	// restored or left to recovery.
	Froze   func(took time.Duration, overdue bool)
	Refused func() // called when an operation on a volume in use is refused
	// called when operations were thawed by another process or after a failure
	Recovered func(operations int)
}

// A Quiescer changes volumes that may be in use, and thaws volumes that were left frozen. It is
// safe for concurrent use.
type Quiescer struct {
	opts  Options
	gate  gate
	wake  chan struct{} // receives a value when an operation is left to recovery
	grace time.Duration // see makingGrace
	// See target.go; on a busy machine, tests wait longer.
	lockTimeout, freezeTimeout time.Duration

	// names of the entries for which SPDK has responded to the snapshot or deletion calls
	settled    sync.Map
	lastLogged map[string]string // for each entry, the last error that Recover logged
}

// overdue is the duration beyond which a freeze causes a warning.
const overdue = 2 * time.Second

// New returns a Quiescer. It recovers nothing until Run or Recover is called.
func New(o Options) *Quiescer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Deleting == nil {
		o.Deleting = func(context.Context, rpcschema.Release) (func(), error) { return func() {}, nil }
	}
	if o.Removing == nil {
		o.Removing = func(context.Context, *Target, string) (func(), error) { return func() {}, nil }
	}
	if o.Enter == nil {
		o.Enter = func(context.Context, string, bool) (func(), error) { return func() {}, nil }
	}
	if o.Observer.Froze == nil {
		o.Observer.Froze = func(time.Duration, bool) {}
	}
	if o.Observer.Refused == nil {
		o.Observer.Refused = func() {}
	}
	if o.Observer.Recovered == nil {
		o.Observer.Recovered = func(int) {}
	}
	return &Quiescer{opts: o, wake: make(chan struct{}, 1), lastLogged: map[string]string{}, grace: makingGrace, lockTimeout: lockTimeout, freezeTimeout: freezeTimeout}
}

// Share waits until no operation on the named objects is running, and prevents new operations until
// release is called. names contains NQNs, and names and aliases of bdevs. The error is a *BusyError
// or ctx's error.
func (q *Quiescer) Share(ctx context.Context, names []string) (release func(), err error) {
	if len(names) == 0 {
		return func() {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	release, err = q.gate.lock(bounded, locksOf(shared, names))
	if err != nil && ctx.Err() == nil {
		return nil, &BusyError{Why: "another call has frozen or locked this volume"}
	}
	return release, err
}

const shareTimeout = 5 * time.Second

// lock acquires an operation's locks. The error is a *BusyError or ctx's error.
func (q *Quiescer) lock(ctx context.Context, l lockSet) (release func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, q.lockTimeout)
	defer cancel()
	release, err = q.gate.lock(bounded, l)
	if err != nil && ctx.Err() == nil {
		return nil, &BusyError{Why: "another call is using the volume, its parent or a clone of it, or is changing its export"}
	}
	return release, err
}

// deleting calls Options.Deleting with a time limit, because volumes may be frozen.
func (q *Quiescer) deleting(ctx context.Context, t *Target) (leave func(), err error) {
	bounded, cancel := context.WithTimeout(ctx, q.lockTimeout)
	defer cancel()
	leave, err = q.opts.Deleting(bounded, t.Release)
	if err != nil && ctx.Err() == nil {
		return nil, &BusyError{Why: "volumes are being listed, and this release of SPDK crashes if a volume is deleted during a listing", Err: err}
	}
	return leave, err
}
