package quiesce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Mode determines how an operation treats volumes in use.
type Mode struct {
	Freeze bool   // freeze volumes in use instead of returning an error
	Idle   bool   // do not count an export without a connected host as use
	User   string // the user who requested the operation; users share the target's slots
	// Unchecked means that volumes in use are neither frozen nor refused.
	Unchecked bool
	// Wait is called before the first snapshot, once no host can write to any of the volumes. If it
	// fails, no snapshot is taken. Wait may be nil.
	Wait func(context.Context) error
}

// wait calls m.Wait. The error is a *BusyError.
func (m Mode) wait(ctx context.Context) error {
	if m.Wait == nil {
		return nil
	}
	if err := m.Wait(ctx); err != nil {
		return &BusyError{Why: "the client did not confirm the snapshots while the volumes were frozen: " + err.Error(), Err: err}
	}
	return nil
}

// A finding contains the volumes that prepare found, and the paths to them.
type finding struct {
	volumes []*volume
	paths   []paths  // paths to be frozen
	idle    []string // NQNs of subsystems that export the volumes but have no connected host
}

// A task describes an operation on volumes.
type task struct {
	// find returns the volumes that must be either unused or frozen. The operation locks these
	// volumes exclusively.
	find     func(context.Context, *spdkrpc.Client) ([]*volume, error)
	related  func() lockSet // returns further locks that the found objects require; may be nil
	noEffect func() bool    // reports whether SPDK will leave the volumes unchanged; may be nil
	names    bool           // the task takes snapshots, whose names must be free
	instead  string         // the call that freezes volumes, to suggest instead; "" if none
}

// countRefusal counts err if it is an InUseError, and adds to it the damage that SPDK could have
// done.
func (q *Quiescer) countRefusal(err error, harm string) error {
	var refused *InUseError
	if errors.As(err, &refused) {
		refused.Harm = harm
		q.opts.Observer.Refused()
	}
	return err
}

// prepare finds and locks the volumes and paths to freeze, so that no call through this proxy
// changes them before o ends.
func (q *Quiescer) prepare(ctx context.Context, o *operation, job task, mode Mode) (f finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	locked, err := q.find(ctx, o, job, &f)
	if err != nil {
		return f, err
	}
	if err := o.lock(ctx, locked); err != nil {
		return f, err
	}
	// Search again, now that no call through this proxy can change the volumes.
	again, err := q.find(ctx, o, job, &f)
	if err != nil {
		return f, err
	}
	if !locked.cover(again) {
		return f, &BusyError{Why: "the volume, its parent or its clones are being changed"}
	}
	if mode.Unchecked {
		return f, nil
	}
	if len(f.volumes) == 0 || job.noEffect != nil && job.noEffect() {
		return f, nil
	}
	g, gctx := errgroup.WithContext(ctx)
	if job.names && !mode.Idle {
		g.Go(func() error { return checkNamesFree(gctx, o.t.rpc, f.volumes) })
	}
	g.Go(func() error { return checkOtherUses(gctx, o.t.rpc, f.volumes, mode.Idle) })
	var nqns []string
	g.Go(func() (err error) {
		nqns, err = exportingNQNs(gctx, o.t.rpc, f.volumes)
		return err
	})
	if err := g.Wait(); err != nil || len(nqns) == 0 {
		return f, err
	}
	if err := o.lock(ctx, locksOf(exclusive, nqns)); err != nil {
		return f, err
	}
	if mode.Idle {
		hosts, err := withHosts(ctx, o.t.rpc, nqns)
		if err != nil || len(hosts) == 0 {
			f.idle = nqns
			return f, err
		}
	}
	if why := q.unfreezable(mode, job.instead); why != "" {
		i := slices.IndexFunc(f.volumes, func(v *volume) bool { return v.claimed })
		return f, &InUseError{Volume: f.volumes[i].Volume, Why: why}
	}
	if f.paths, err = pathsTo(ctx, o.t.rpc, nqns, f.volumes); err == nil {
		err = checkAllCovered(f.paths, f.volumes)
	}
	if err == nil && job.names && mode.Idle {
		// without a freeze, SPDK itself refuses a name that is in use
		err = checkNamesFree(ctx, o.t.rpc, f.volumes)
	}
	return f, err
}

// find finds an operation's volumes, and returns the locks that it needs.
func (q *Quiescer) find(ctx context.Context, o *operation, job task, f *finding) (l lockSet, err error) {
	if f.volumes, err = job.find(ctx, o.t.rpc); err != nil {
		return nil, err
	}
	names, err := distinctVolumes(f.volumes)
	if err != nil {
		return nil, err
	}
	l = locksOf(exclusive, names)
	if job.related != nil {
		for name, by := range job.related() {
			l.add(by, name)
		}
	}
	return l, nil
}

// unfreezable returns the reason why the operation must not freeze volumes in use, with the remedy.
// If the operation may freeze them, it returns "".
func (q *Quiescer) unfreezable(mode Mode, instead string) string {
	switch {
	case instead == "":
		return "it is exported. Detach it, then retry"
	case !mode.Freeze:
		return "hosts are connected to it. Detach the volume; or call " + instead + ", which freezes the volume for that time"
	case q.opts.Folder == nil:
		return "it is exported, and this proxy cannot freeze it without a freeze journal (target.freeze.dir). Detach the volume, then retry; or ask the administrator of this proxy to set target.freeze.dir"
	}
	return ""
}

// distinctVolumes returns the names of all volumes. If a volume is listed twice, it returns an
// error.
func distinctVolumes(volumes []*volume) (names []string, err error) {
	seen := map[string]bool{}
	for _, v := range volumes {
		if seen[v.uuid] {
			return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.InvalidParams, Code: -int(syscall.EINVAL), Message: "volume " + v.Volume + " is listed twice"}
		}
		seen[v.uuid] = true
		names = append(names, v.names...)
	}
	return names, nil
}

// reportConnected logs the subsystems to which a host connected during an operation on a volume
// that was not frozen.
func (q *Quiescer) reportConnected(o *operation, nqns []string) {
	if len(nqns) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	if o.enter(ctx) != nil {
		return
	}
	defer o.free()
	for _, nqn := range nqns {
		if yes, err := connected(ctx, o.t.rpc, nqn); yes && err == nil {
			q.opts.Log.Error("a host connected while SPDK changed a volume that was not frozen", "subsystem", nqn,
				"do", "run spdk-proxy check-lvstore before the target is restarted")
		}
	}
}

// whileFrozen writes the entry to the journal, freezes the paths, calls do, and thaws the paths. If
// it cannot thaw the paths, they stay frozen until recovery thaws them.
func (q *Quiescer) whileFrozen(ctx context.Context, t *Target, all []paths, e entry, do func() error) (err error) {
	release, err := q.lock(ctx, drainingLocks(all))
	if err != nil {
		return err
	}
	drained := sync.OnceFunc(release)
	defer drained()
	e.Made, e.Process, e.At, e.Paths = time.Now(), t.Process, q.opts.At, all
	r, err := q.opts.Folder.create(e)
	if err != nil {
		return err
	}
	began, stage := time.Now(), freezing
	defer func() {
		thawErr := q.thaw(t, r, stage)
		took := time.Since(began)
		q.opts.Observer.Froze(took, took > overdue)
		q.report(all, took, err, thawErr)
	}()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.freezeTimeout)
	defer cancel()
	if err := freeze(bounded, t, all); err != nil {
		return &BusyError{Why: "the volume could not be frozen in time", Err: err}
	}
	drained()
	stage = making
	err = do()
	if !errors.Is(err, spdkrpc.OutcomeUnknown) {
		stage = made
	}
	return err
}

// A stage is how far an operation got before it ended.
type stage int

const (
	freezing stage = iota // SPDK may still execute calls that freeze paths
	making                // SPDK may still execute the snapshot or deletion
	made                  // SPDK has responded to all calls
)

// thaw thaws an operation's paths. If SPDK may still execute the snapshot or deletion, the paths
// stay frozen until recovery thaws them.
func (q *Quiescer) thaw(t *Target, r *record, at stage) error {
	err := errNotThawed
	if at != making {
		ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
		defer cancel()
		err = thaw(ctx, t, r.entry.Paths, at == made)
	}
	if err == nil {
		return r.remove()
	}
	if at != making {
		q.settled.Store(r.name, true)
	}
	r.release()
	q.recoverSoon()
	return err
}

// report logs the result of a freeze.
func (q *Quiescer) report(all []paths, took time.Duration, err, thawErr error) {
	var nqns []string
	for _, p := range all {
		nqns = append(nqns, p.NQN)
	}
	attrs := []any{slog.Any("subsystems", distinct(nqns)), slog.Int64("frozen_ms", took.Milliseconds())}
	switch {
	case thawErr != nil:
		q.opts.Log.Error("volumes are still frozen, and hosts hold back I/O; retrying", append(attrs, slog.Any("error", errors.Join(err, thawErr)))...)
	case err != nil:
		q.opts.Log.Warn("operation on frozen volumes failed", append(attrs, slog.Any("error", err))...)
	case took > overdue:
		q.opts.Log.Warn("volumes were frozen for a long time", attrs...)
	default:
		q.opts.Log.Info("volumes were frozen", attrs...)
	}
}

// logSlow repeatedly logs that an operation on frozen volumes is taking a long time, until done is
// closed.
func (q *Quiescer) logSlow(object string, of int, done <-chan struct{}) {
	began := time.Now()
	for wait := slowOperation; ; wait = 10 * slowOperation {
		select {
		case <-done:
			return
		case <-time.After(wait):
			q.opts.Log.Error("the target has not responded to an operation on frozen volumes yet, and hosts hold back I/O", "object", object, "of", of, "waited", time.Since(began).Round(time.Second).String())
		}
	}
}

// notExecuted converts the error of a query before any change to an error that says that the
// operation was not executed.
func notExecuted(err error) error {
	if errors.Is(err, spdkrpc.OutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return &BusyError{Why: "the target did not report in time what uses the volume", Err: fmt.Errorf("%w", err)}
	}
	if e := unreadable(err); e != nil {
		return &AnswerError{Method: e.Method, Err: err}
	}
	return err
}

// unreadable returns err's *spdkrpc.Error if SPDK reported success with a result that violates the
// schema. For other errors, it returns nil.
func unreadable(err error) *spdkrpc.Error {
	var e *spdkrpc.Error
	if errors.As(err, &e) && e.Kind == spdkrpc.Failed && e.Code == 0 {
		return e
	}
	return nil
}
