package heal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// A State describes a volume as of the last round.
type State struct {
	// Degraded means that the volume is working without one of its replicas.
	Degraded bool
	// Synced is the number of regions that have been rebuilt, out of Regions. Both numbers are zero
	// if nothing is being rebuilt.
	Synced, Regions uint64
	// Waiting means that writes may be waiting: a replica in the mirror does not respond or has
	// failed, and has not been dropped yet.
	Waiting bool
	// Problem is the reason why a step failed, or what the volume is waiting for; empty if there is
	// no problem.
	Problem string
}

// State returns the result of the last round. ok is false for a volume that is not on this node, or
// that has not been checked yet.
func (h *Healer) State(name string) (s State, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.volumes[name]
	if v == nil {
		return s, false
	}
	return v.state, true
}

// States returns the states of all volumes on this node, by name.
func (h *Healer) States() map[string]State {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]State{}
	for name, v := range h.volumes {
		all[name] = v.state
	}
	return all
}

// Run heals the volumes until ctx ends.
func (h *Healer) Run(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		h.mu.Lock()
		for _, v := range h.volumes {
			rounds.Go(func() { v.tryRound(ctx) })
		}
		h.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Check performs one round for each volume, and waits for all rounds to end.
func (h *Healer) Check(ctx context.Context) {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.volumes))
	h.mu.Unlock()
	for _, v := range all {
		v.tryRound(ctx)
	}
}

// tryRound performs one round unless another call is using the volume. A round can hang in the
// kernel while a replica does not respond.
func (v *volume) tryRound(ctx context.Context) {
	select {
	case v.busy <- struct{}{}:
	default:
		return
	}
	defer func() { <-v.busy }()
	if !v.staged || v.over {
		return
	}
	if err := v.exclusive(); err != nil {
		v.report(State{Problem: err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	state, what, err := v.round(ctx)
	switch {
	case err != nil:
		state.Problem = err.Error()
		v.failed(ctx, what, err)
	case what == complete: // each round costs a call to the API server
		v.pause, v.notBefore = 0, v.Now().Add(completeInterval)
	case what != wait:
		v.pause, v.notBefore = 0, time.Time{}
	}
	v.report(state)
}

// report stores the result of a round.
func (v *volume) report(s State) {
	v.Healer.mu.Lock()
	defer v.Healer.mu.Unlock()
	v.state = s
}

// failed postpones the next attempt. If the volume's publication has ended, it abandons the mirror.
func (v *volume) failed(ctx context.Context, what step, err error) {
	v.unfinished = v.unfinished || what != nothing && what != reconnect
	v.pause = min(max(2*v.pause, interval), longestPause)
	v.notBefore = v.Now().Add(v.pause)
	v.Log.WarnContext(ctx, "a replicated volume is waiting", "volume", v.Name, "error", err, "retryAfter", v.pause)
	if !publicationIsOver(err) {
		return
	}
	if err := v.mirror.Abandon(ctx); err != nil {
		v.Log.WarnContext(ctx, "cannot stop the I/O of an ended publication", "volume", v.Name, "error", err)
		return
	}
	v.over = true
}

// round examines the volume, performs one step, and returns that step. If nothing is wrong, it only
// reads the kernel's state.
func (v *volume) round(ctx context.Context) (State, step, error) {
	local, err := v.mirror.Local()
	if err != nil {
		return State{}, nothing, err
	}
	o := v.observe(ctx)
	if local.Complete && !local.Failed && o.lost == 0 && !v.unfinished {
		return State{}, nothing, nil
	}
	before := v.previous()
	before.Waiting = before.Waiting || local.Failed || local.Complete && o.lost != 0
	if v.Now().Before(v.notBefore) {
		return before, wait, nil
	}
	if v.unfinished {
		if _, err := v.mirror.Start(ctx); err != nil { // the mirror is running, so this completes an interrupted operation
			return before, nothing, err
		}
		v.unfinished = false
	}
	if o.Status, err = v.mirror.Status(ctx); err != nil {
		return before, nothing, err
	}
	state := State{Degraded: o.Missing|o.Rebuilding != 0, Waiting: (o.Members|o.Rebuilding)&(o.lost|o.Failed) != 0 || o.LogFailed}
	if o.Rebuilding != 0 {
		state.Synced, state.Regions = o.Synced, o.Regions
	}
	what, id := next(o)
	if what == nothing && o.lost|o.Failed != 0 {
		state.Problem = fmt.Sprintf("writes are waiting for a server: replicas %v do not respond, and I/O to %v failed", o.lost.IDs(), o.Failed.IDs())
	}
	if err = v.do(ctx, what, id, o); err == nil && what != nothing {
		state.Waiting = false
	}
	return state, what, err
}

// previous returns the state of the last round.
func (v *volume) previous() State {
	v.Healer.mu.Lock()
	defer v.Healer.mu.Unlock()
	return v.state
}

// observe determines which replicas are live, and which are lost.
func (v *volume) observe(ctx context.Context) (o observation) {
	now := v.Now()
	o.retried = now.Sub(v.retriedAt) < retryAgain
	for _, r := range v.Replicas {
		_, err := v.find(ctx, r.Export)
		switch {
		case err == nil:
			delete(v.lostSince, r.ID)
			o.live |= replica.SetOf(r.ID)
			continue
		case errors.Is(err, errUnknown): // that proves nothing
			continue
		case errors.Is(err, connect.ErrNotConnected):
			o.disconnected |= replica.SetOf(r.ID)
		}
		since, known := v.lostSince[r.ID]
		if !known {
			since = now
			v.lostSince[r.ID] = now
		}
		if now.Sub(since) >= v.Grace {
			o.lost |= replica.SetOf(r.ID)
		}
	}
	return o
}

func (v *volume) do(ctx context.Context, what step, id replica.ID, o observation) error {
	switch what {
	case drop:
		return v.mirror.Drop(ctx, id)
	case retry:
		v.retriedAt = v.Now()
		return v.releasing(ctx, dispensable(o.Status), func() error { return v.mirror.Retry(ctx) })
	case add:
		return v.mirror.Add(ctx, id)
	case complete:
		return v.releasing(ctx, dispensable(o.Status), func() error {
			_, err := v.mirror.Complete(ctx)
			return err
		})
	case reconnect:
		for _, r := range v.Replicas {
			if r.ID == id {
				return v.notConnected(v.connect(ctx, r), r)
			}
		}
	}
	return nil
}

// notConnected adds the name of a replica's server to an error; a nil error remains nil.
func (v *volume) notConnected(err error, r Replica) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: replica %d on server %s: %w", mirror.ErrUnreachable, r.ID, r.Server, err)
}
