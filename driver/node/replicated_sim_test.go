package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// A replicatedWorld contains everything that outlives the node plugin: two storage servers, the
// kernel's connections and mirror, and the witness. Like dm-mirror, the mirror acknowledges a write
// when all of its legs have completed the write, and holds a write that fails on one leg.
type replicatedWorld struct {
	t         *testing.T
	clock     time.Time
	data      [2]map[int]int // by block, on each server
	up        [2]bool        // whether the server responds
	connected [2]bool
	record    witness.Record
	noAPI     bool

	running bool
	legs    replica.Set // replicas that are in sync in the mirror
	second  replica.Set // the replica that is being rebuilt
	inFull  bool
	marks   map[int]bool // blocks that the missing replica lacks
	held    [][2]int     // block and value of writes that are not acknowledged
	acked   map[int]int
}

func newReplicatedWorld(t *testing.T) *replicatedWorld {
	w := &replicatedWorld{t: t, clock: time.Unix(1e9, 0), up: [2]bool{true, true}, marks: map[int]bool{}, acked: map[int]int{}}
	w.data = [2]map[int]int{{}, {}}
	w.record = witness.Record{UID: "uid-1", Witness: replica.NewWitness(replica.SetOf(0, 1)).Publish(nodeA)}
	return w
}

// healer returns the healer of a new process.
func (w *replicatedWorld) healer() *heal.Healer {
	return heal.New(heal.Options{
		Connector: w, Witnesses: w, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.clock },
		NewMirror: func(v mirror.Volume, o mirror.Options) (heal.Mirror, error) {
			return simMirror{w, v.Writer, v.UUIDs, o}, nil
		},
	})
}

func (w *replicatedWorld) idOf(e connect.Export) replica.ID {
	for i, uuid := range replicaUUIDs {
		if e.NSUUID == uuid {
			return replica.ID(i)
		}
	}
	w.t.Fatalf("unknown export %v", e)
	return 0
}

func (w *replicatedWorld) Paths(_ context.Context, e connect.Export) (connect.Paths, error) {
	id := w.idOf(e)
	if !w.connected[id] {
		return connect.Paths{NoDevice: connect.ErrNotConnected}, nil
	}
	return connect.Paths{All: []connect.Path{{Live: w.up[id]}}, Device: connect.Device{Path: "/dev/" + e.NSUUID}}, nil
}

func (w *replicatedWorld) Reconnect(_ context.Context, e connect.Export) error {
	id := w.idOf(e)
	if !w.up[id] {
		return connect.ErrUnreachable
	}
	w.connected[id] = true
	return nil
}

func (w *replicatedWorld) Disconnect(ctx context.Context, e connect.Export) error {
	assert.False(w.t, w.running, "a replica is disconnected below a mirror")
	return w.Release(ctx, e)
}

func (w *replicatedWorld) Release(_ context.Context, e connect.Export) error {
	w.connected[w.idOf(e)] = false
	return nil
}

func (w *replicatedWorld) Get(context.Context, string) (witness.Record, error) {
	if w.noAPI {
		return witness.Record{}, errors.New("no API server")
	}
	return w.record, nil
}

func (w *replicatedWorld) Change(_ context.Context, _, uid string, change func(replica.Witness) (replica.Witness, error)) (witness.Record, error) {
	if w.noAPI || uid != w.record.UID {
		return witness.Record{}, errors.New("no API server")
	}
	next, err := change(w.record.Witness)
	if err == nil {
		w.record.Witness = next
	}
	w.check()
	return w.record, err
}

// check verifies that each replica that the witness lists as in sync contains every acknowledged
// write.
func (w *replicatedWorld) check() {
	for _, id := range w.record.Witness.InSync.IDs() {
		for block, value := range w.acked {
			require.GreaterOrEqual(w.t, w.data[id][block], value, "replica %d lacks an acknowledged write of block %d", id, block)
		}
	}
}

// write writes a block. The mirror acknowledges the write immediately or later.
func (w *replicatedWorld) write(block, value int) {
	w.held = append(w.held, [2]int{block, value})
	w.flush()
}

// flush repeats the writes that the mirror is holding.
func (w *replicatedWorld) flush() {
	held := w.held
	w.held = nil
	for _, h := range held {
		all := true
		for _, id := range (w.legs | w.second).IDs() {
			if w.connected[id] && w.up[id] {
				w.data[id][h[0]] = h[1]
			} else {
				all = false
			}
		}
		if !all || !w.running {
			w.held = append(w.held, h)
			continue
		}
		if w.legs.Len() == 1 {
			w.marks[h[0]] = true
		}
		w.acked[h[0]] = max(w.acked[h[0]], h[1])
	}
	w.check()
}

// A simMirror is the mirror as it is used by one process.
type simMirror struct {
	*replicatedWorld
	writer  replica.Writer
	uuids   [replica.MaxReplicas]string
	options mirror.Options
}

// reach returns the replicas whose devices can be found.
func (m simMirror) reach(ctx context.Context) (found replica.Set) {
	for _, id := range replica.SetOf(0, 1).IDs() {
		if _, err := m.options.Find(ctx, m.uuids[id]); err == nil {
			found |= replica.SetOf(id)
		}
	}
	return found
}

func (m simMirror) change(ctx context.Context, change func(replica.Witness) (replica.Witness, error)) error {
	_, err := m.options.Witness.Change(ctx, change)
	return err
}

func (m simMirror) Start(ctx context.Context) (replica.Decision, error) {
	now, err := m.options.Witness.Read(ctx)
	if err != nil {
		return replica.Decision{}, err
	}
	if m.running {
		if lost := m.legs &^ now.InSync; lost != 0 {
			return replica.Decision{}, m.Drop(ctx, lost.IDs()[0])
		}
		return replica.Decision{}, nil
	}
	var view replica.View
	for _, id := range m.reach(ctx).IDs() {
		view[id] = replica.Seen{State: replica.Ours, Superblock: replica.Superblock{InSync: now.InSync, Epoch: now.Epoch}}
		if !now.Created {
			view[id].State = replica.Blank
		}
	}
	d := replica.Decide(m.writer, now, true, view)
	switch d.Action {
	case replica.Create:
		if err := m.change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.Create(m.writer) }); err != nil {
			return d, err
		}
		return m.Start(ctx)
	case replica.Start:
	default:
		return d, &mirror.DecisionError{Decision: d}
	}
	err = m.change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.Start(m.writer, d.InSync, d.Logged) })
	m.replicatedWorld.running, m.replicatedWorld.legs, m.replicatedWorld.second = err == nil, d.InSync, 0
	return d, err
}

func (m simMirror) Stop(ctx context.Context) error {
	if len(m.held) > 0 {
		return mirror.ErrBusy
	}
	if !m.running {
		return nil
	}
	m.replicatedWorld.running = false
	return m.change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.Stop(m.writer) })
}

func (m simMirror) Local() (mirror.Local, error) {
	if !m.running {
		return mirror.Local{}, mirror.ErrRefused
	}
	return mirror.Local{Device: "/dev/dm-7", Complete: m.legs.Len() == 2}, nil
}

func (m simMirror) Status(ctx context.Context) (mirror.Status, error) {
	if _, err := m.options.Witness.Read(ctx); err != nil {
		return mirror.Status{}, err
	}
	s := mirror.Status{Device: "/dev/dm-7", Members: m.legs, Rebuilding: m.second, Missing: replica.SetOf(0, 1) &^ m.legs &^ m.second}
	if m.second != 0 {
		s.Regions = 1
	}
	return s, nil
}

func (m simMirror) Drop(ctx context.Context, id replica.ID) error {
	lost := replica.SetOf(id)
	if err := m.change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.SetInSync(m.writer, w.InSync&^lost) }); err != nil {
		return err
	}
	if err := m.options.Release(ctx, m.uuids[id]); err != nil {
		return err
	}
	m.legs, m.second = m.legs&^lost, 0
	m.flush()
	return m.change(ctx, func(w replica.Witness) (replica.Witness, error) {
		w, err := w.Hold(m.writer, m.legs)
		if err != nil {
			return w, err
		}
		return w.Log(m.writer, lost)
	})
}

func (m simMirror) Retry(context.Context) error { m.flush(); return nil }

func (m simMirror) Add(ctx context.Context, id replica.ID) error {
	set := replica.SetOf(id)
	require.True(m.t, m.reach(ctx).Has(id))
	m.second = set
	return m.change(ctx, func(w replica.Witness) (replica.Witness, error) {
		m.inFull = !w.Logged.Has(id)
		return w.Hold(m.writer, m.legs|set)
	})
}

func (m simMirror) Complete(ctx context.Context) (bool, error) {
	from, to := m.legs.IDs()[0], m.second.IDs()[0]
	if !m.reach(ctx).Contains(m.legs | m.second) {
		return false, nil
	}
	if m.inFull {
		m.data[to] = maps.Clone(m.data[from])
	}
	for block := range m.marks {
		m.data[to][block] = m.data[from][block]
	}
	if err := m.change(ctx, func(w replica.Witness) (replica.Witness, error) { return w.SetInSync(m.writer, replica.SetOf(0, 1)) }); err != nil {
		return false, err
	}
	m.legs, m.second, m.replicatedWorld.marks = replica.SetOf(0, 1), 0, map[int]bool{}
	m.flush()
	return true, nil
}

func (m simMirror) Abandon(ctx context.Context) error {
	now, err := m.options.Witness.Read(ctx)
	if err != nil || now.Writer == m.writer {
		return errors.Join(err, mirror.ErrRefused)
	}
	m.replicatedWorld.held = nil // the held writes fail
	return nil
}
