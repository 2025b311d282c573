package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// Drop removes a replica from the mirror because it has failed or its server does not respond. Drop
// changes the witness first. If the witness cannot be changed, the mirror continues to hold the
// failed writes. The last replica cannot be dropped.
func (m *Mirror) Drop(ctx context.Context, id replica.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.permitted(ctx)
	if err != nil {
		return err
	}
	l, err := m.layout(ctx, w)
	if err != nil {
		return err
	}
	if l.missing() && id == l.second {
		return nil
	}
	if !w.Replicas.Has(id) || l.missing() || !l.pair() && id == l.first && w.InSync != w.Replicas {
		return fmt.Errorf("%w: replica %d is the only current replica, or is not in the mirror", ErrRefused, id)
	}
	return m.drop(ctx, w, id, l)
}

// drop removes a replica from the in-sync set, and then from the mirror.
func (m *Mirror) drop(ctx context.Context, w replica.Witness, id replica.ID, l layout) error {
	keep, lost := l.first+l.second-id, replica.SetOf(id)
	if _, err := m.notRestored(ctx, w, keep); err != nil {
		return err
	}
	w, err := m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) {
		return w.SetInSync(m.volume.Writer, w.InSync&^lost)
	})
	if err != nil {
		return fmt.Errorf("record that replica %d is dropped: %w", id, err)
	}
	m.Log.Warn("a replica was dropped", "replica", id, "uuid", m.volume.UUIDs[id])
	return m.goOnWithout(ctx, w, keep, id, l)
}

// goOnWithout lets the mirror continue without a replica that the witness no longer lists as in
// sync.
func (m *Mirror) goOnWithout(ctx context.Context, w replica.Witness, keep, lost replica.ID, l layout) error {
	if w.InSync != replica.SetOf(keep) {
		return fmt.Errorf("%w: replicas %v are in sync, not only %d", ErrRefused, w.InSync.IDs(), keep)
	}
	// Suspending the mirror waits for all I/O to its replicas, so the I/O to the lost replica must
	// end first.
	if err := m.Release(ctx, m.volume.UUIDs[lost]); err != nil {
		return fmt.Errorf("end the connections of replica %d: %w", lost, err)
	}
	if l.pair() {
		if err := m.formatLog(ctx, keep, clearMarks); err != nil {
			return err
		}
	}
	t, err := m.singleTable(ctx, keep)
	if err != nil {
		return err
	}
	leg := 0
	if keep == l.second {
		leg = 1
	}
	wait, failed, err := m.swapQueued(t, leg)
	if err != nil {
		return err
	}
	set := replica.SetOf(keep)
	if err := m.write(ctx, set, replica.Superblock{Epoch: w.Epoch, InSync: set}); err != nil {
		return err
	}
	if err := m.hold(ctx, set); err != nil || !l.pair() {
		return err
	}
	if failed {
		m.Log.Warn("both replicas have failed; the second will be rebuilt in full", "replica", lost)
		return nil
	}
	if err := m.settle(ctx, wait); err != nil {
		return err
	}
	_, err = m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) {
		return w.Log(m.volume.Writer, replica.SetOf(lost))
	})
	if err != nil {
		return fmt.Errorf("record that the log covers replica %d: %w", lost, err)
	}
	return nil
}

// swapQueued replaces the mirror's table. While the mirror is suspended, it queues a read behind
// the writes that wait for the new table. wait returns when the kernel has started these writes.
// failed reports whether I/O to a leg of the previous table may have failed.
func (m *Mirror) swapQueued(t table, leg int) (wait func(context.Context) error, failed bool, err error) {
	name := m.name()
	if err := m.kernel.load(name, t.target(m.sectors())); err != nil {
		return nil, false, err
	}
	if err := m.kernel.suspend(name); err != nil {
		return nil, false, errors.Join(err, m.kernel.clear(name))
	}
	// If both legs have failed, the kernel fails writes instead of holding them. Such a write may
	// be on only one replica, and no log marks it.
	k, _, statusErr := m.kernel.find(name)
	p, parseErr := parseProgress(k.status)
	failed = statusErr != nil || parseErr != nil || !p.alive[leg]
	wait, queueErr := m.kernel.queueRead(name)
	if err := m.kernel.resume(name); err != nil {
		return nil, false, err
	}
	if queueErr != nil { // the mirror is running, but the log may not cover the writes
		return func(context.Context) error { return queueErr }, failed, nil
	}
	return wait, failed, nil
}

// settle returns when each write of the previous table has completed, and its region is marked if
// the write did not reach both replicas. A resume only schedules the writes that are waiting for
// the new table, and a suspend prevents the kernel from starting the remaining writes. settle
// therefore first waits for the read that is queued behind these writes. It then suspends the
// mirror, which waits until all started writes have completed.
func (m *Mirror) settle(ctx context.Context, wait func(context.Context) error) error {
	if err := wait(ctx); err != nil {
		return fmt.Errorf("wait for the writes that were in flight: %w", err)
	}
	if err := m.kernel.suspend(m.name()); err != nil {
		return err
	}
	return m.kernel.resume(m.name())
}

// Retry repeats the writes that the mirror is holding. Call Retry when the replica's server
// responds again. Retry looks up the devices again, because their numbers may have changed. If both
// replicas have failed, some writes may have failed and may be on only one replica. In that case,
// Retry drops the second replica, which must be rebuilt in full.
func (m *Mirror) Retry(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.permitted(ctx)
	if err != nil {
		return err
	}
	l, err := m.layout(ctx, w)
	if err != nil {
		return err
	}
	p, err := parseProgress(l.status)
	if err != nil {
		return err
	}
	var t table
	switch {
	case l.missing():
		t, err = m.singleTable(ctx, l.first)
	case !l.pair() && w.InSync != w.Replicas:
		t, err = m.rebuildTable(ctx, l.first, l.second)
	case w.InSync != w.Replicas:
		return fmt.Errorf("%w: a replica was dropped, but is still in the volume's mirror: start the mirror again", ErrRefused)
	case l.pair() && !p.alive[0] && !p.alive[1]:
		return m.drop(ctx, w, l.second, l)
	default: // a rebuild table would send writes to a marked region to one listed replica only
		t, err = m.pairTable(ctx, w.InSync)
	}
	if err != nil {
		return err
	}
	return m.swap(m.name(), t.target(m.sectors()))
}

// Add starts to rebuild the missing replica according to the decision of [replica.Readd].
// [Mirror.Complete] ends the rebuild.
func (m *Mirror) Add(ctx context.Context, id replica.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.permitted(ctx)
	if err != nil {
		return err
	}
	l, err := m.layout(ctx, w)
	if err != nil {
		return err
	}
	if l.second != id {
		return fmt.Errorf("%w: replica %d is already in sync, or does not belong to the volume", ErrRefused, id)
	}
	if !l.missing() {
		return nil
	}
	current, err := m.notRestored(ctx, w, l.first)
	if err != nil {
		return err
	}
	running := replica.SetOf(l.first)
	view, there, causes := m.look(ctx, replica.SetOf(id))
	// If a replica has lost even its last superblock from the time when both replicas were in sync,
	// it lacks regions that the log does not mark.
	hasOldData := there[id].superblock.Epoch < current.Together
	kind, format := replica.ByBitmap, keepMarks
	w, err = m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) {
		if w.InSync != running {
			return w, fmt.Errorf("%w: replicas %v are in sync, but the mirror contains only %d", ErrRefused, w.InSync.IDs(), l.first)
		}
		kind, format = replica.ByBitmap, keepMarks
		switch replica.Readd(running, view[id], w.Logged.Has(id) && !hasOldData, w.Discarded.Has(id)) {
		case replica.AddByBitmap:
		case replica.AddInFull:
			kind, format = replica.InFull, setMarks
		case replica.NotThere:
			return w, fmt.Errorf("replica %d: %w", id, ErrUnreachable)
		default:
			return w, &DecisionError{replica.Decision{Action: replica.Refuse, Because: replica.SetOf(id), Left: replica.SetOf(id)}, causes}
		}
		return w.Hold(m.volume.Writer, running|replica.SetOf(id))
	})
	if err != nil {
		return fmt.Errorf("add replica %d: %w", id, err)
	}
	if err := m.write(ctx, replica.SetOf(id), replica.Superblock{Epoch: w.Epoch, InSync: running, Rebuild: kind}); err != nil {
		return err
	}
	t, err := m.rebuildTable(ctx, l.first, id)
	if err != nil {
		return err
	}
	name := m.name()
	// The kernel does not write to the log while the mirror is suspended, so the log can be
	// formatted now. The table is loaded only after the log is formatted, because an interrupted
	// change is completed if its table is already loaded.
	err = m.kernel.suspend(name)
	if err == nil {
		err = m.formatLog(ctx, l.first, format)
	}
	if err == nil {
		err = m.kernel.load(name, t.target(m.sectors()))
	}
	if err := errors.Join(err, m.kernel.resume(name)); err != nil {
		return err
	}
	m.Log.Info("a replica is being rebuilt", "replica", id, "inFull", kind == replica.InFull)
	return nil
}

// Complete ends a rebuild. If all regions are in sync, Complete lists the replica in the witness,
// moves the log to memory, and returns true. Complete returns false while some regions have yet to
// be copied.
func (m *Mirror) Complete(ctx context.Context) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.permitted(ctx)
	if err != nil {
		return false, err
	}
	l, err := m.layout(ctx, w)
	if err != nil {
		return false, err
	}
	if l.pair() {
		return w.InSync == w.Replicas, nil
	}
	p, err := parseProgress(l.status)
	if err != nil || l.missing() || !p.complete() {
		return false, err
	}
	both := replica.SetOf(l.first, l.second)
	if err := m.write(ctx, both, replica.Superblock{Epoch: w.Epoch, InSync: both}); err != nil {
		return false, err
	}
	w, err = m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) {
		return w.SetInSync(m.volume.Writer, both)
	})
	if err != nil {
		return false, fmt.Errorf("record that replica %d is in sync: %w", l.second, err)
	}
	m.Log.Info("a replica is in sync", "replica", l.second)
	return true, m.logInMemory(ctx, w)
}

// logInMemory moves the log to memory. The witness must list both replicas as in sync.
func (m *Mirror) logInMemory(ctx context.Context, w replica.Witness) error {
	t, err := m.pairTable(ctx, w.InSync)
	if err != nil {
		return err
	}
	return m.swap(m.name(), t.target(m.sectors()))
}
