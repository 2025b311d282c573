package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

const (
	testID   = "t0:volume"
	testSize = 64 << 20
	node     = "node1"
)

var (
	both = replica.SetOf(0, 1)
	setA = replica.SetOf(0)
	setB = replica.SetOf(1)
)

// errCrash is returned by each step after the plugin has been killed.
var errCrash = errors.New("the plugin was killed")

// errInjected is returned by the request that a test makes fail.
var errInjected = errors.New("injected failure")

// A world simulates the environment of a mirror: the kernel's devices, the replicas and the
// witness. At each step, the simulation checks the rules in docs/design/replication.md.
type world struct {
	t       *testing.T
	witness replica.Witness
	noAPI   bool
	disks   map[string]*memory // by UUID
	mapped  map[string]*mapped // by name
	created uint32
	steps   []string
	crashAt int // the step before which the plugin is killed; 0 for none
	// failAt is the number of the request to the kernel, a disk or a server that fails; 0 for none.
	// failed describes the failed request.
	requests, failAt int
	failed           string
	diesAt           string // the plugin is killed before a step whose description contains this text
	// delayed means that the API server does not respond to the next write. late executes that
	// write unless the witness has been changed since then. It is called after each step.
	delayed bool
	late    func()

	old    oldWrites
	synced int // regions in sync during a rebuild
	// noMarks means that the witness listed no replica as logged before the mirror started.
	noMarks bool
}

// oldWrites is the state of the writes that were in flight when a replica was lost.
type oldWrites int

const (
	noWrites oldWrites = iota
	deferred           // the writes are waiting for the new table
	takenUp            // the kernel has sent the writes to the new table
	returned
)

type mapped struct {
	mapping
	inactive target
	open     bool
	health   string // state of the legs, in the format of the status; empty if no I/O has failed
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, mapped: map[string]*mapped{}, disks: map[string]*memory{}}
	w.witness = replica.NewWitness(both).Publish(node)
	for i, uuid := range []string{"uuid-a", "uuid-b"} {
		w.disks[uuid] = &memory{world: w, uuid: uuid, dev: fmt.Sprintf("259:%d", i), length: HeadBytes + testSize}
	}
	return w
}

// disk returns a replica's disk.
func (w *world) disk(id replica.ID) *memory { return w.disks[[]string{"uuid-a", "uuid-b"}[id]] }

// plugin returns the mirror of a plugin process that has just started.
func (w *world) plugin() *Mirror {
	m, err := New(Volume{ID: testID, Size: testSize, Writer: replica.Writer{Node: node, Generation: 1}, UUIDs: [replica.MaxReplicas]string{"uuid-a", "uuid-b"}}, Options{
		Witness: w,
		Find: func(_ context.Context, uuid string) (string, error) {
			if err := w.request("find a device"); err != nil {
				return "", err
			}
			if w.disks[uuid].gone {
				return "", ErrUnreachable
			}
			return uuid, nil
		},
		Release: func(_ context.Context, uuid string) error {
			assert.False(w.t, w.witness.InSync.Has(w.idOf(uuid)), "a listed replica is released")
			return w.step("release %s", uuid)
		},
		Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(w.t, err)
	m.kernel, m.disks = w, w
	return m
}

func (w *world) idOf(uuid string) replica.ID { return replica.ID(strings.Index("ab", uuid[5:])) }

// request counts a request to the kernel, a disk or a server, and fails if failAt selects it.
func (w *world) request(does string) error {
	if w.requests++; w.requests == w.failAt {
		w.failed = does
		return errInjected
	}
	return nil
}

// step records a step that changes the world.
func (w *world) step(format string, args ...any) error {
	if err := w.request(fmt.Sprintf(format, args...)); err != nil {
		return err
	}
	if w.crashAt > 0 && len(w.steps)+1 >= w.crashAt || w.diesAt != "" && strings.Contains(fmt.Sprintf(format, args...), w.diesAt) {
		return errCrash
	}
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
	if w.late != nil {
		w.late()
	}
	return nil
}

// restart restarts the plugin, or the whole node if power is true.
func (w *world) restart(power bool) {
	w.crashAt, w.noAPI = 0, false
	if power {
		w.mapped, w.old = map[string]*mapped{}, noWrites
	}
}

func (w *world) Read(context.Context) (replica.Witness, error) {
	if w.noAPI {
		return replica.Witness{}, errors.New("no API server")
	}
	return w.witness, w.request("read the witness")
}

func (w *world) Change(_ context.Context, change func(replica.Witness) (replica.Witness, error)) (replica.Witness, error) {
	if w.noAPI {
		return replica.Witness{}, errors.New("no API server")
	}
	next, err := change(w.witness)
	if err != nil {
		return w.witness, err
	}
	if w.delayed {
		read := w.witness
		w.delayed, w.late = false, func() {
			if w.witness == read && w.synced < testSize/RegionBytes {
				w.late, w.witness = nil, next
			}
		}
		return w.witness, errors.New("the API server does not respond")
	}
	if err := w.step("witness inSync=%v held=%v logged=%v clean=%v", next.InSync.IDs(), next.Held.IDs(), next.Logged.IDs(), next.Clean); err != nil {
		return w.witness, err
	}
	if next.Logged&^w.witness.Logged != 0 && w.old != noWrites {
		assert.Equal(w.t, returned, w.old, "the log counts although writes of the old table have not returned")
	}
	if joined := next.InSync &^ w.witness.InSync; joined != 0 && w.witness.Created {
		for _, id := range next.InSync.IDs() {
			s, state := w.superblock(id)
			assert.True(w.t, state == replica.Ours && s.Rebuild == replica.NoRebuild, "replica %d is listed before its superblock is written", id)
		}
		assert.Equal(w.t, testSize/RegionBytes, w.synced, "a replica is listed before it is rebuilt")
	}
	if next.Clean && !w.witness.Clean && next.Created == w.witness.Created {
		assert.NotContains(w.t, w.mapped, "spdkmirror-"+testID, "a running mirror counts as stopped")
	}
	if w.table() == "" && w.witness.Logged == 0 {
		w.noMarks = true
	}
	w.witness = next
	return next, nil
}

func (w *world) superblock(id replica.ID) (superblock, replica.State) {
	requests, failAt := w.requests, w.failAt
	defer func() { w.requests, w.failAt = requests, failAt }()
	w.failAt = 0
	d := *w.disk(id)
	d.failing, d.gone = nil, false
	state, s, _ := readHead(&d)
	return s, state
}

func (w *world) check() error { return w.request("check the kernel") }

func (w *world) find(name string) (mapping, bool, error) {
	d := w.mapped[name]
	does := "look up a device"
	if d != nil && d.suspended {
		does = "look up a suspended device"
	}
	if err := w.request(does); err != nil {
		return mapping{}, false, err
	}
	if d == nil {
		return mapping{}, false, nil
	}
	m := d.mapping
	m.loaded = d.inactive.kind != ""
	if t, err := parseTable(m.active); err == nil {
		synced, log := testSize/RegionBytes, "1 core"
		if t.log != "" {
			synced, log = w.synced, "3 disk "+t.log+" A"
		}
		m.status = fmt.Sprintf("2 %s %s %d/%d 1 %s %s", t.legs[0].number, t.legs[1].number, synced, testSize/RegionBytes, cmp.Or(d.health, "AA"), log)
	}
	return m, true, nil
}

func (w *world) create(name, uuid string) error {
	if err := w.step("create %s", name); err != nil {
		return err
	}
	require.NotContains(w.t, w.mapped, name)
	w.created++
	w.mapped[name] = &mapped{mapping: mapping{uuid: uuid, minor: w.created, number: fmt.Sprintf("253:%d", w.created)}}
	return nil
}

func (w *world) load(name string, t target) error {
	if err := w.step("load %s: %s %s", name, t.kind, t.params); err != nil {
		return err
	}
	w.mapped[name].inactive = t
	return nil
}

func (w *world) clear(name string) error {
	if err := w.step("clear %s", name); err != nil {
		return err
	}
	w.mapped[name].inactive = target{}
	return nil
}

func (w *world) suspend(name string) error {
	if err := w.step("suspend %s", name); err != nil {
		return err
	}
	d := w.mapped[name]
	d.suspended = true
	if t, err := parseTable(d.active); err == nil {
		switch {
		case t.log == "":
			w.old = deferred
		case w.old == takenUp:
			w.old = returned
		}
	}
	return nil
}

func (w *world) resume(name string) error {
	if err := w.step("resume %s", name); err != nil {
		return err
	}
	d := w.mapped[name]
	if d.inactive.kind != "" {
		if d.inactive.kind == "mirror" {
			w.checkTable(d.active, d.inactive)
		}
		d.active, d.inactive, d.health = d.inactive, target{}, ""
	}
	d.suspended = false
	return nil
}

func (w *world) remove(name string) error {
	if w.mapped[name].open {
		return ErrBusy
	}
	if err := w.step("remove %s", name); err != nil {
		return err
	}
	delete(w.mapped, name)
	return nil
}

func (w *world) queueRead(name string) (func(context.Context) error, error) {
	if err := w.request("queue a read"); err != nil {
		return nil, err
	}
	d := w.mapped[name]
	behind := d.suspended
	return func(context.Context) error {
		if err := w.request("wait for the queued read"); err != nil {
			return err
		}
		assert.False(w.t, d.suspended, "nothing is read from a suspended device")
		if behind && w.old == deferred {
			w.old = takenUp
		}
		return nil
	}, nil
}

// table returns the table in use.
func (w *world) table() string {
	if d := w.mapped["spdkmirror-"+testID]; d != nil {
		return d.active.params
	}
	return ""
}

// after returns the steps since its last call.
func (w *world) after() []string {
	s := slices.Clone(w.steps)
	w.steps = nil
	return s
}
