package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// A layout describes the replicas in a running mirror.
type layout struct {
	mapping
	table table
	// first and second are the replicas of the two legs. The second replica may be missing from the
	// mirror.
	first, second replica.ID
}

// missing reports whether the second replica is missing from the mirror.
func (l layout) missing() bool { return l.table.keepLog }

// pair reports whether the mirror's table was loaded with both replicas in sync.
func (l layout) pair() bool { return l.table.log == "" }

// layout returns the layout of the running mirror. It does not read the replicas, which may be
// unresponsive.
func (m *Mirror) layout(ctx context.Context, w replica.Witness) (layout, error) {
	k, found, err := m.kernel.find(m.name())
	switch {
	case err != nil:
		return layout{}, err
	case !found || k.uuid != m.uuid() || k.active.kind == "":
		return layout{}, fmt.Errorf("%w: its mirror is not running: stage the volume again", ErrRefused)
	case w.Replicas.Len() != 2:
		return layout{}, fmt.Errorf("%w: the volume has %d replicas: a mirror of this driver has two", ErrUnsupported, w.Replicas.Len())
	}
	l := layout{mapping: k}
	if l.table, err = parseTable(k.active); err != nil {
		return layout{}, fmt.Errorf("%w: the device %s: %w", ErrRefused, m.name(), err)
	}
	ids := w.Replicas.IDs()
	known := map[string]replica.ID{}
	for _, id := range ids {
		if number, err := m.numberOf(ctx, id); err == nil {
			known[number] = id
		}
	}
	first, ok := known[l.table.legs[0].number]
	if !ok {
		second, ok := known[l.table.legs[1].number]
		if !ok || l.missing() {
			return layout{}, fmt.Errorf("%w: none of the devices in its mirror is connected", ErrWait)
		}
		first = ids[0] + ids[1] - second
	}
	l.first, l.second = first, ids[0]+ids[1]-first
	if second, ok := known[l.table.legs[1].number]; ok && second != l.second {
		return layout{}, fmt.Errorf("%w: its mirror contains replica %d twice", ErrRefused, second)
	}
	return l, nil
}

// numberOf returns the device number of a connected replica without reading from the device.
func (m *Mirror) numberOf(ctx context.Context, id replica.ID) (string, error) {
	path, err := m.pathOf(ctx, id)
	if err != nil {
		return "", err
	}
	return m.disks.number(path)
}

// Status returns the status of the mirror. It fails if the witness no longer names this publication
// as the writer.
func (m *Mirror) Status(ctx context.Context) (Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.permitted(ctx)
	if err != nil {
		return Status{}, err
	}
	l, err := m.layout(ctx, w)
	if err != nil {
		return Status{}, err
	}
	p, err := parseProgress(l.status)
	if err != nil {
		return Status{}, err
	}
	s := Status{Device: l.path(), Members: replica.SetOf(l.first), LogFailed: p.logFailed, Synced: p.synced, Regions: p.total}
	second := replica.SetOf(l.second)
	switch {
	case l.missing():
		s.Missing = second
	case l.pair():
		s.Members |= second
	default:
		s.Rebuilding = second
	}
	if !p.alive[0] {
		s.Failed |= replica.SetOf(l.first)
	}
	if !p.alive[1] && !l.missing() {
		s.Failed |= second
	}
	return s, nil
}

// permitted reads the witness, and fails unless the witness names this publication as the writer.
func (m *Mirror) permitted(ctx context.Context) (replica.Witness, error) {
	w, err := m.Witness.Read(ctx)
	if err != nil {
		return w, fmt.Errorf("%w: %s: %w", ErrWait, reasons[replica.WitnessUnreachable], err)
	}
	if w.Writer != m.volume.Writer {
		return w, &DecisionError{Decision: replica.Decision{Action: replica.Refuse, Reason: replica.Fenced}}
	}
	return w, nil
}

// adopt takes over a running mirror that an earlier plugin process has started.
func (m *Mirror) adopt(ctx context.Context) (replica.Decision, error) {
	d := replica.Decision{Action: replica.Start}
	w, err := m.permitted(ctx)
	if err != nil {
		return replica.Decision{}, err
	}
	for _, name := range []string{m.lostName(), m.logName(), m.name()} {
		if err := m.finishSwap(name); err != nil {
			return replica.Decision{}, err
		}
	}
	l, err := m.layout(ctx, w)
	if err != nil {
		return replica.Decision{}, err
	}
	for _, id := range w.InSync.IDs() {
		var older *DecisionError // an unreadable replica may be the reason for a Drop
		if _, err := m.notRestored(ctx, w, id); errors.As(err, &older) {
			return replica.Decision{}, older
		}
	}
	d.InSync, d.Logged = w.InSync, w.Logged
	switch first := replica.SetOf(l.first); {
	case l.pair() && w.InSync == w.Replicas:
		return d, nil
	case l.pair() && w.InSync.Len() == 1: // a replica was dropped
		keep := w.InSync.IDs()[0]
		return d, m.goOnWithout(ctx, w, keep, l.first+l.second-keep, l)
	case l.missing() && w.InSync == first:
		if err := m.write(ctx, first, replica.Superblock{Epoch: w.Epoch, InSync: first}); err != nil {
			return d, err
		}
		return d, m.hold(ctx, first)
	case !l.pair() && !l.missing() && w.InSync == first: // a rebuild
		// An earlier call of Complete may have sent a write that is delayed. That write must not
		// list the replica after the mirror has continued without the replica, so change the
		// witness first.
		_, err := m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.SetInSync(m.volume.Writer, w.InSync) })
		return d, err
	case !l.pair() && !l.missing() && w.InSync == w.Replicas: // a complete rebuild
		return d, m.logInMemory(ctx, w)
	}
	return replica.Decision{}, fmt.Errorf("%w: its mirror contradicts the record of its in-sync replicas: the mirror's table is %q, but replicas %v are in sync", ErrRefused, l.active.params, w.InSync.IDs())
}

// finishSwap finishes an interrupted change of a device's table. If the device is suspended, it
// completes the change, because the witness has already permitted the loaded table. If the device
// is running, it discards the loaded table.
func (m *Mirror) finishSwap(name string) error {
	k, found, err := m.kernel.find(name)
	switch {
	case err != nil || !found:
		return err
	case k.suspended:
		return m.kernel.resume(name)
	case k.loaded:
		return m.kernel.clear(name)
	}
	return nil
}

// hold records the replicas in the mirror in the witness.
func (m *Mirror) hold(ctx context.Context, set replica.Set) error {
	_, err := m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.Hold(m.volume.Writer, set) })
	if err != nil {
		return fmt.Errorf("record the mirror's replicas: %w", err)
	}
	return nil
}
