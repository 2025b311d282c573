package quiesce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	snapshotMethod = "bdev_lvol_snapshot"
	codeNoDevice   = -int(syscall.ENODEV)
)

// A Snapshot is one that is wanted.
type Snapshot struct {
	Volume string // the logical volume: name, alias or UUID of its bdev
	Name   string // of the snapshot, in the volume's lvstore
	NQN    string // of the subsystem that exports the volume; "" or a wrong one: it is looked for
}

// A Taken is a snapshot that was taken.
type Taken struct {
	UUID   string
	Frozen bool // the volume was frozen meanwhile; otherwise nothing used it
}

// Take takes snapshots of volumes, of all at one moment or of none. Volumes that
// hosts use are frozen meanwhile, or refused if they cannot be.
//
// With mode.Freeze, what can be frozen is; without, it is refused. With mode.Idle,
// an export that no host is connected to does not count as use, although one could
// connect in the next moment: for clients that know nothing of freezing.
//
// Once something is frozen, ctx does not end the operation. Of the errors,
// *InUseError, *ExistsError, *BusyError and one of the kind spdkrpc.Unreachable
// mean that nothing was taken; an *spdkrpc.Error of another kind is the target's.
func (q *Quiescer) Take(ctx context.Context, wanted []Snapshot, mode Mode) ([]Taken, error) {
	taken, err := q.take(ctx, wanted, mode)
	var refused *InUseError
	if errors.As(err, &refused) {
		q.opts.Watch.Refused()
	}
	return taken, err
}

// A Mode says what becomes of volumes that are exported.
type Mode struct{ Freeze, Idle bool }

func (q *Quiescer) take(ctx context.Context, wanted []Snapshot, mode Mode) ([]Taken, error) {
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t, err := q.opts.Connect.to(ctx, q.opts.At)
	if err != nil {
		return nil, err
	}
	defer func() { _ = t.Close() }()
	var held holds
	defer held.giveAll()
	found, err := q.prepare(ctx, t, wanted, mode, &held)
	if err != nil {
		return nil, before(err)
	}
	if len(found.paths) > 0 {
		return q.frozen(ctx, t, found.volumes, found.paths)
	}
	taken, err := q.act(t, found.volumes)
	q.tellConnected(t, found.idle)
	return taken, err
}

// A finding is what there is to do.
type finding struct {
	volumes []*volume
	paths   []paths  // to freeze
	idle    []string // subsystems that export the volumes, and that no host is connected to
}

// prepare finds out what there is to freeze, and keeps it from being changed.
func (q *Quiescer) prepare(ctx context.Context, t *Target, wanted []Snapshot, mode Mode, held *holds) (f finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if f.volumes, err = look(ctx, t.rpc, wanted); err != nil {
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
	// Again, now that no call through this proxy changes it.
	if f.volumes, err = look(ctx, t.rpc, wanted); err != nil {
		return f, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return free(gctx, t.rpc, f.volumes) })
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
	if why := q.unfreezable(mode); why != "" {
		i := slices.IndexFunc(f.volumes, func(v *volume) bool { return v.claimed })
		return f, &InUseError{f.volumes[i].Volume, why}
	}
	if f.paths, err = pathsTo(ctx, t.rpc, nqns, f.volumes); err == nil {
		err = covers(f.paths, f.volumes)
	}
	return f, err
}

// unfreezable says why nothing is to be frozen; "" if it is.
func (q *Quiescer) unfreezable(mode Mode) string {
	switch {
	case !mode.Freeze:
		return "hosts are connected to it. Detach the volume; or call spdkgate_lvol_snapshot instead of bdev_lvol_snapshot, which has hosts hold their I/O back meanwhile"
	case q.opts.Folder == nil:
		return "it is exported, and this proxy keeps no journal of frozen volumes (target.freeze.dir), so it freezes none. Detach the volume, then take the snapshot; or ask whoever runs this proxy"
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

// tellConnected logs hosts that have connected while a snapshot was taken of a
// volume that was not frozen.
func (q *Quiescer) tellConnected(t *Target, nqns []string) {
	ctx, cancel := context.WithTimeout(context.Background(), readWithin)
	defer cancel()
	for _, nqn := range nqns {
		if yes, err := connected(ctx, t.rpc, nqn); yes && err == nil {
			q.opts.Log.Error("a host connected while a snapshot was taken of a volume that was not frozen: run spdk-proxy check-lvstore before the target is restarted", "subsystem", nqn)
		}
	}
}

// frozen takes snapshots of volumes that are frozen meanwhile. Whatever happens,
// what was frozen is thawed, here or by recovery.
func (q *Quiescer) frozen(ctx context.Context, t *Target, volumes []*volume, all []paths) (taken []Taken, err error) {
	e := entry{Made: time.Now(), Process: t.Process, At: q.opts.At, Paths: all}
	for _, v := range volumes {
		e.Making = append(e.Making, v.alias())
	}
	r, err := q.opts.Folder.create(e)
	if err != nil {
		return nil, err
	}
	began, stage := time.Now(), freezing
	defer func() {
		thawErr := q.thaw(t, r, stage)
		took := time.Since(began)
		q.opts.Watch.Froze(took, took > overdue)
		q.tell(all, took, err, thawErr)
	}()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeWithin)
	defer cancel()
	if err := freeze(bounded, t, all); err != nil {
		return nil, &BusyError{Why: "the volume could not be frozen in time: no snapshot was taken", Err: err}
	}
	stage = making
	taken, err = q.act(t, volumes)
	if !errors.Is(err, spdkrpc.OutcomeUnknown) {
		stage = made
	}
	for i := range taken {
		taken[i].Frozen = volumes[i].claimed
	}
	return taken, err
}

// A stage of an operation, when it ends.
type stage int

const (
	freezing stage = iota // calls that freeze paths may be executed yet
	making                // snapshots may be under way
	made                  // all calls were answered
)

// thaw thaws what an operation has frozen, or leaves it to recovery: so it is
// where a snapshot may still be under way.
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

// tell logs how a freeze went.
func (q *Quiescer) tell(all []paths, took time.Duration, err, thawErr error) {
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
		q.opts.Log.Info("volumes were frozen for a snapshot", attrs...)
	}
}

// act takes the snapshots, and undoes those that were taken if one fails. It waits
// as long as the connection lasts: a volume that is thawed while its snapshot is
// being taken is what must not be.
func (q *Quiescer) act(t *Target, volumes []*volume) ([]Taken, error) {
	taken, errs := make([]Taken, len(volumes)), make([]error, len(volumes))
	done := make(chan struct{})
	go q.complain(volumes, done)
	defer close(done)
	var g errgroup.Group
	for i, v := range volumes {
		g.Go(func() error {
			taken[i].UUID, errs[i] = t.rpc.BdevLvolSnapshot(context.Background(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.uuid, SnapshotName: v.Name})
			return errs[i]
		})
	}
	err := g.Wait()
	if err == nil {
		return taken, nil
	}
	for i, err := range errs {
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), thawWithin)
		undo := t.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: taken[i].UUID})
		cancel()
		if undo != nil {
			q.opts.Log.Error("a snapshot is left over, as others that belong to it failed", "snapshot", volumes[i].alias(), "error", undo)
			return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.OutcomeUnknown, Err: undo}
		}
	}
	for _, e := range errs { // what may have been executed counts most
		if errors.Is(e, spdkrpc.OutcomeUnknown) {
			return nil, e
		}
	}
	return nil, err
}

// complain logs snapshots that take long.
func (q *Quiescer) complain(volumes []*volume, done <-chan struct{}) {
	began := time.Now()
	for wait := longSnapshot; ; wait = 10 * longSnapshot {
		select {
		case <-done:
			return
		case <-time.After(wait):
			q.opts.Log.Error("the target does not end a snapshot: hosts hold their I/O back until it does", "snapshot", volumes[0].alias(), "of", len(volumes), "waited", time.Since(began).Round(time.Second).String())
		}
	}
}

// before makes the failure of a question that comes before anything was done one
// of an operation that was not executed.
func before(err error) error {
	if errors.Is(err, spdkrpc.OutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		return &BusyError{Why: "the target did not tell in time who uses the volume", Err: fmt.Errorf("%w", err)}
	}
	return err
}
