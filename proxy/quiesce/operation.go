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

// A Mode says what becomes of volumes that are exported.
type Mode struct{ Freeze, Idle bool }

// A finding is what there is to do.
type finding struct {
	volumes []*volume
	paths   []paths  // to freeze
	idle    []string // subsystems that export the volumes, and that no host is connected to
}

// A task is what is to be done to volumes.
type task struct {
	look    func(context.Context, *spdkrpc.Client) ([]*volume, error)
	moot    func() bool // SPDK does nothing to the volumes that were looked up last; nil: it does
	names   bool        // of snapshots, which must be free
	instead string      // what freezes: the call to make instead, if there is one
}

// enter connects to the target, when not too many operations have. leave may be
// called again.
func (q *Quiescer) enter(ctx context.Context) (t *Target, leave func(), err error) {
	select {
	case q.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, before(ctx.Err())
	}
	t, err = q.opts.Connect.to(ctx, q.opts.At)
	if err != nil {
		<-q.slots
		return nil, nil, err
	}
	return t, sync.OnceFunc(func() {
		_ = t.Close()
		<-q.slots
	}), nil
}

// refused counts a refusal, and tells what SPDK could have done.
func (q *Quiescer) refused(err error, harm string) error {
	var refused *InUseError
	if errors.As(err, &refused) {
		refused.Harm = harm
		q.opts.Watch.Refused()
	}
	return err
}

// prepare finds out what there is to freeze, and keeps it from being changed.
func (q *Quiescer) prepare(ctx context.Context, t *Target, job task, mode Mode, held *holds) (f finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if f.volumes, err = job.look(ctx, t.rpc); err != nil {
		return f, err
	}
	names, err := distinctVolumes(f.volumes)
	if err != nil {
		return f, err
	}
	give, err := q.own(ctx, names)
	if err != nil {
		return f, err
	}
	held.add(give)
	owned := names
	// Again, now that no call through this proxy changes it.
	if f.volumes, err = job.look(ctx, t.rpc); err != nil {
		return f, err
	}
	if names, err = distinctVolumes(f.volumes); err != nil {
		return f, err
	}
	if slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(owned, n) }) {
		return f, &BusyError{Why: "the volume, or its clones, are changing"}
	}
	if len(f.volumes) == 0 || job.moot != nil && job.moot() {
		return f, nil
	}
	g, gctx := errgroup.WithContext(ctx)
	if job.names && !mode.Idle {
		g.Go(func() error { return free(gctx, t.rpc, f.volumes) })
	}
	g.Go(func() error { return unclaimed(gctx, t.rpc, f.volumes, mode.Idle) })
	var nqns []string
	g.Go(func() (err error) {
		nqns, err = subsystems(gctx, t.rpc, f.volumes)
		return err
	})
	if err := g.Wait(); err != nil || len(nqns) == 0 {
		return f, err
	}
	if give, err = q.own(ctx, nqns); err != nil {
		return f, err
	}
	held.add(give)
	if mode.Idle {
		hosts, err := active(ctx, t.rpc, nqns)
		if err != nil || len(hosts) == 0 {
			f.idle = nqns
			return f, err
		}
	}
	if why := q.unfreezable(mode, job.instead); why != "" {
		i := slices.IndexFunc(f.volumes, func(v *volume) bool { return v.claimed })
		return f, &InUseError{Volume: f.volumes[i].Volume, Why: why}
	}
	if f.paths, err = pathsTo(ctx, t.rpc, nqns, f.volumes); err == nil {
		err = covers(f.paths, f.volumes)
	}
	if err == nil && job.names && mode.Idle {
		err = free(ctx, t.rpc, f.volumes) // without a freeze, SPDK answers this itself
	}
	return f, err
}

// unfreezable says why nothing is to be frozen; "" if it is.
func (q *Quiescer) unfreezable(mode Mode, instead string) string {
	switch {
	case instead == "":
		return "it is exported. Detach it, then try again"
	case !mode.Freeze:
		return "hosts are connected to it. Detach the volume; or call " + instead + ", which has hosts hold their I/O back meanwhile"
	case q.opts.Folder == nil:
		return "it is exported, and this proxy keeps no journal of frozen volumes (target.freeze.dir), so it freezes none. Detach the volume, then try again; or ask whoever runs this proxy"
	}
	return ""
}

// distinctVolumes refuses a list that has a volume twice, and gives all names of all.
func distinctVolumes(volumes []*volume) (names []string, err error) {
	seen := map[string]bool{}
	for _, v := range volumes {
		if seen[v.uuid] {
			return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.InvalidParams, Code: -int(syscall.EINVAL), Message: "volume " + v.Volume + " stands twice in the list"}
		}
		seen[v.uuid] = true
		names = append(names, v.names...)
	}
	return names, nil
}

// reportConnected logs hosts that have connected during an operation on a volume that
// was not frozen.
func (q *Quiescer) reportConnected(t *Target, nqns []string) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	for _, nqn := range nqns {
		if yes, err := connected(ctx, t.rpc, nqn); yes && err == nil {
			q.opts.Log.Error("a host connected while SPDK changed a volume that was not frozen: run spdk-proxy check-lvstore before the target is restarted", "subsystem", nqn)
		}
	}
}

// frozen does something to volumes that are frozen meanwhile, as the entry says.
// Whatever happens, what was frozen is thawed, here or by recovery.
func (q *Quiescer) frozen(ctx context.Context, t *Target, all []paths, e entry, do func() error) (err error) {
	e.Made, e.Process, e.At, e.Paths = time.Now(), t.Process, q.opts.At, all
	r, err := q.opts.Folder.create(e)
	if err != nil {
		return err
	}
	began, stage := time.Now(), freezing
	defer func() {
		thawErr := q.thaw(t, r, stage)
		took := time.Since(began)
		q.opts.Watch.Froze(took, took > overdue)
		q.report(all, took, err, thawErr)
	}()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeWithin)
	defer cancel()
	if err := freeze(bounded, t, all); err != nil {
		return &BusyError{Why: "the volume could not be frozen in time", Err: err}
	}
	stage = making
	err = do()
	if !errors.Is(err, spdkrpc.OutcomeUnknown) {
		stage = made
	}
	return err
}

// A stage of an operation, when it ends.
type stage int

const (
	freezing stage = iota // calls that freeze paths may be executed yet
	making                // what was frozen for may be under way
	made                  // all calls were answered
)

// thaw thaws what an operation has frozen, or leaves it to recovery: so it is
// where what it was for may still be under way.
func (q *Quiescer) thaw(t *Target, r *record, at stage) error {
	err := errNotThawed
	if at != making {
		ctx, cancel := context.WithTimeout(context.Background(), thawWithin)
		defer cancel()
		err = thaw(ctx, t, r.entry.Paths, at == made)
	}
	if err == nil {
		return r.remove()
	}
	if at != making {
		q.unmade.Store(r.name, true)
	}
	r.release()
	q.recoverSoon()
	return err
}

// report logs how a freeze went.
func (q *Quiescer) report(all []paths, took time.Duration, err, thawErr error) {
	var nqns []string
	for _, p := range all {
		nqns = append(nqns, p.NQN)
	}
	attrs := []any{slog.Any("subsystems", distinct(nqns)), slog.Int64("frozen_ms", took.Milliseconds())}
	switch {
	case thawErr != nil:
		q.opts.Log.Error("paths are still inaccessible, and hosts hold their I/O back: recovery goes on", append(attrs, slog.Any("error", errors.Join(err, thawErr)))...)
	case err != nil:
		q.opts.Log.Warn("volumes were frozen in vain", append(attrs, slog.Any("error", err))...)
	case took > overdue:
		q.opts.Log.Warn("volumes were frozen for long", attrs...)
	default:
		q.opts.Log.Info("volumes were frozen", attrs...)
	}
}

// logFailure logs what takes long while volumes are frozen.
func (q *Quiescer) logFailure(object string, of int, done <-chan struct{}) {
	began := time.Now()
	for wait := longSnapshot; ; wait = 10 * longSnapshot {
		select {
		case <-done:
			return
		case <-time.After(wait):
			q.opts.Log.Error("the target does not end an operation on frozen volumes: hosts hold their I/O back until it does", "object", object, "of", of, "waited", time.Since(began).Round(time.Second).String())
		}
	}
}

// before makes the failure of a question that comes before anything was done one
// of an operation that was not executed.
func before(err error) error {
	if errors.Is(err, spdkrpc.OutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return &BusyError{Why: "the target did not tell in time who uses the volume", Err: fmt.Errorf("%w", err)}
	}
	if e := unreadable(err); e != nil {
		return &AnswerError{Method: e.Method, Err: err}
	}
	return err
}

// unreadable finds the error of a call that was answered without an error, but with
// a result that is not what the schema says; nil if err is another one.
func unreadable(err error) *spdkrpc.Error {
	var e *spdkrpc.Error
	if errors.As(err, &e) && e.Kind == spdkrpc.Failed && e.Code == 0 {
		return e
	}
	return nil
}
