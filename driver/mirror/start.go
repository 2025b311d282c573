package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// Start starts the mirror according to the decision of [replica.Decide], and returns the decision.
// If the mirror is already running, Start completes the changes that an earlier plugin process
// began; only Action, InSync and Logged of the decision are then set.
//
// Start does not add replicas that must first be rebuilt: see [Mirror.Add].
func (m *Mirror) Start(ctx context.Context) (replica.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.kernel.check(); err != nil {
		return replica.Decision{}, err
	}
	found, err := m.current()
	if err != nil {
		return replica.Decision{}, err
	}
	if found {
		return m.adopt(ctx)
	}
	m.stopped = false
	if err := m.remove(); err != nil { // leftovers of an interrupted start or stop
		return replica.Decision{}, err
	}
	d, err := m.start(ctx)
	if err == nil && d.Action == replica.Create {
		d, err = m.start(ctx)
	}
	return d, err
}

// current reports whether the mirror of this publication exists, either running or suspended.
func (m *Mirror) current() (bool, error) {
	k, found, err := m.kernel.find(m.name())
	if err != nil || !found {
		return false, err
	}
	if !k.ours() {
		return false, fmt.Errorf("%w: a device %s of another program exists (UUID %q)", ErrRefused, m.name(), k.uuid)
	}
	return k.uuid == m.uuid() && k.active.kind != "", nil
}

// start makes the decision and carries it out.
func (m *Mirror) start(ctx context.Context) (replica.Decision, error) {
	w, err := m.Witness.Read(ctx)
	if err != nil {
		d := replica.Decide(m.volume.Writer, w, false, replica.View{})
		return d, errors.Join(&DecisionError{Decision: d}, err)
	}
	if w.Replicas.Len() != 2 {
		return replica.Decision{}, fmt.Errorf("%w: the volume has %d replicas: a mirror of this driver has two", ErrUnsupported, w.Replicas.Len())
	}
	view, _, causes := m.look(ctx, w.Replicas)
	d := replica.Decide(m.volume.Writer, w, true, view)
	for id, cause := range causes {
		if cause != nil {
			m.Log.Warn("a replica is not usable", "replica", id, "uuid", m.volume.UUIDs[id], "error", cause)
		}
	}
	switch d.Action {
	case replica.Create:
		return d, m.create(ctx, d.InSync)
	case replica.Start:
	default:
		return d, &DecisionError{d, causes}
	}
	keep := false
	stored, err := m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) {
		d = replica.Decide(m.volume.Writer, w, true, view)
		if d.Action != replica.Start {
			return w, &DecisionError{d, causes}
		}
		keep = w.Logged != 0
		return w.Start(m.volume.Writer, d.InSync, d.Logged)
	})
	if err != nil {
		return d, fmt.Errorf("record the start: %w", err)
	}
	if err := m.write(ctx, d.InSync, replica.Superblock{Epoch: stored.Epoch, InSync: d.InSync}); err != nil {
		return d, err
	}
	if err := m.assemble(ctx, stored, keep); err != nil {
		return d, err
	}
	m.Log.Info("mirror started", "inSync", d.InSync.IDs(), "logged", d.Logged.IDs(), "left", d.Left.IDs())
	return d, nil
}

// create writes the first superblocks of a new volume, which has no data yet.
func (m *Mirror) create(ctx context.Context, all replica.Set) error {
	if err := m.write(ctx, all, replica.Superblock{InSync: all}); err != nil {
		return err
	}
	_, err := m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.Create(m.volume.Writer) })
	if err != nil {
		return fmt.Errorf("record that the volume is created: %w", err)
	}
	return nil
}

// assemble creates the devices of the mirror from the replicas that the witness lists as in sync.
// If keep is true, it preserves the marks in the log on the replica.
func (m *Mirror) assemble(ctx context.Context, w replica.Witness, keep bool) error {
	t, err := m.tableOf(ctx, w, keep)
	if err != nil {
		return err
	}
	return m.createDevice(m.name(), m.uuid(), t.target(m.sectors()))
}

func (m *Mirror) tableOf(ctx context.Context, w replica.Witness, keep bool) (table, error) {
	if w.InSync == w.Replicas {
		return m.pairTable(ctx, w.InSync)
	}
	id := w.InSync.IDs()[0]
	if !keep {
		if err := m.formatLog(ctx, id, clearMarks); err != nil {
			return table{}, err
		}
	}
	return m.singleTable(ctx, id)
}

// pairTable returns the table for two replicas that are in sync.
func (m *Mirror) pairTable(ctx context.Context, set replica.Set) (t table, err error) {
	for i, id := range set.IDs() {
		if t.legs[i], err = m.leg(ctx, id); err != nil {
			return table{}, err
		}
	}
	return t, nil
}

// singleTable returns the table for a single replica. It also prepares the log and the device that
// replaces the missing replica.
func (m *Mirror) singleTable(ctx context.Context, id replica.ID) (t table, err error) {
	t = table{keepLog: true}
	if t.legs[0], err = m.leg(ctx, id); err != nil {
		return table{}, err
	}
	if t.log, err = m.prepareLog(t.legs[0]); err != nil {
		return table{}, err
	}
	t.legs[1].number, err = m.prepareLost()
	return t, err
}

// rebuildTable returns the table that copies from one replica to another.
func (m *Mirror) rebuildTable(ctx context.Context, from, to replica.ID) (t table, err error) {
	for i, id := range []replica.ID{from, to} {
		if t.legs[i], err = m.leg(ctx, id); err != nil {
			return table{}, err
		}
	}
	t.log, err = m.prepareLog(t.legs[0])
	return t, err
}

func (m *Mirror) leg(ctx context.Context, id replica.ID) (leg, error) {
	number, err := m.number(ctx, id)
	return leg{number, headSectors}, err
}

// prepareLog maps the log's device to the log on a replica, and returns the device's number.
func (m *Mirror) prepareLog(on leg) (string, error) {
	want := target{"linear", logSectors, fmt.Sprintf("%s %d", on.number, logOffset/sectorBytes)}
	return m.prepare(m.logName(), uuidPrefix+"log-"+m.volume.ID, want)
}

// prepareLost creates the device that replaces a missing replica, and returns the device's number.
func (m *Mirror) prepareLost() (string, error) {
	return m.prepare(m.lostName(), uuidPrefix+"lost-"+m.volume.ID, target{"error", m.sectors(), ""})
}

// prepare creates a device below the mirror, or changes the device's table, and returns the
// device's number.
func (m *Mirror) prepare(name, uuid string, want target) (string, error) {
	k, found, err := m.kernel.find(name)
	switch {
	case err != nil:
		return "", err
	case found && !k.ours():
		return "", fmt.Errorf("%w: a device %s of another program exists (UUID %q)", ErrRefused, name, k.uuid)
	case !found:
		err = m.createDevice(name, uuid, want)
	case k.active != want || k.suspended || k.loaded:
		err = m.swap(name, want)
	}
	if err != nil {
		return "", err
	}
	k, _, err = m.kernel.find(name)
	return k.number, err
}

// createDevice creates a device with a table. If the table cannot be loaded or activated, it
// removes the device.
func (m *Mirror) createDevice(name, uuid string, t target) error {
	err := m.kernel.create(name, uuid)
	if err == nil {
		err = m.kernel.load(name, t)
	}
	if err == nil {
		err = m.kernel.resume(name)
	}
	if err != nil {
		return errors.Join(err, m.removeDevice(name))
	}
	return nil
}

// swap replaces the table of a device. When swap returns, each write of the previous table has
// returned or is waiting for the new table.
func (m *Mirror) swap(name string, t target) error {
	if err := m.kernel.load(name, t); err != nil {
		return err
	}
	if err := m.kernel.suspend(name); err != nil {
		return errors.Join(err, m.kernel.clear(name))
	}
	return m.kernel.resume(name)
}

// remove removes the volume's devices.
func (m *Mirror) remove() error {
	for _, name := range []string{m.name(), m.logName(), m.lostName()} {
		if err := m.removeDevice(name); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mirror) removeDevice(name string) error {
	k, found, err := m.kernel.find(name)
	switch {
	case err != nil || !found:
		return err
	case !k.ours():
		return fmt.Errorf("%w: a device %s of another program exists (UUID %q)", ErrRefused, name, k.uuid)
	}
	return m.kernel.remove(name)
}

// Stop removes the mirror, and then records in the witness that no write was in flight. It fails
// with ErrBusy while the device is in use. If the mirror has already disappeared, Stop records
// nothing, because the node may have lost power. It also records nothing if both replicas have
// failed, because failed writes may be on only one of the replicas.
func (m *Mirror) Stop(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.current()
	if err != nil {
		return err
	}
	equal := found && !m.bothFailed()
	if err := m.removeDevice(m.name()); err != nil {
		return err
	}
	m.stopped = m.stopped || equal
	if err := m.remove(); err != nil {
		return err
	}
	if !m.stopped {
		return nil
	}
	_, err = m.Witness.Change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.Stop(m.volume.Writer) })
	if err != nil {
		return fmt.Errorf("record the clean stop: %w", err)
	}
	m.stopped = false
	return nil
}

// bothFailed reports whether I/O to both replicas of the mirror may have failed while both were in
// sync. The kernel then fails writes instead of holding them, and no log on a replica marks them.
func (m *Mirror) bothFailed() bool {
	k, _, err := m.kernel.find(m.name())
	if err != nil {
		return true
	}
	t, err := parseTable(k.active)
	if err != nil {
		return true
	}
	p, err := parseProgress(k.status)
	return err != nil || t.log == "" && !p.alive[0] && !p.alive[1]
}
