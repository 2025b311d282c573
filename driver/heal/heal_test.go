package heal

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// A fake is a node with a mirror of two replicas. It records the steps of the healer.
type fake struct {
	*Healer
	options mirror.Options
	clock   time.Time
	live    map[string]bool // connected replicas, by UUID
	down    map[string]bool // servers that do not respond, by UUID
	paths   error
	status  mirror.Status
	running bool
	record  witness.Record
	noAPI   bool
	fail    map[string]error // by step
	// During the next step that suspends the mirror, the server of this replica stops responding.
	// The step waits until the replica's connections are ended.
	hangs    string
	released chan struct{}

	mu    sync.Mutex // guards live and steps, which concurrent connections change
	steps []string
}

var testVolume = Volume{Name: "volume", UID: "uid", SizeBytes: 64 << 20, Node: "n1", Generation: 1, Replicas: []Replica{
	{ID: 0, Server: "a", UUID: "uuid-a", Export: connect.Export{NSUUID: "uuid-a", NQN: "nqn-a"}},
	{ID: 1, Server: "b", UUID: "uuid-b", Export: connect.Export{NSUUID: "uuid-b", NQN: "nqn-b"}},
}}

func newFake(t *testing.T) *fake {
	f := &fake{clock: time.Unix(1e9, 0), live: map[string]bool{}, down: map[string]bool{}, fail: map[string]error{}, status: mirror.Status{Members: both}}
	f.record = witness.Record{UID: "uid", Witness: replica.NewWitness(both).Publish("n1")}
	f.restart(t)
	return f
}

// restart starts the process again.
func (f *fake) restart(t *testing.T) {
	f.Healer = New(Options{
		Connector: f, Witnesses: f, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return f.clock },
		NewMirror: func(v mirror.Volume, o mirror.Options) (Mirror, error) {
			assert.Equal(t, [replica.MaxReplicas]string{"uuid-a", "uuid-b"}, v.UUIDs)
			assert.Equal(t, replica.Writer{Node: "n1", Generation: 1}, v.Writer)
			f.options = o
			return f, nil
		},
	})
}

func (f *fake) step(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, name)
	return f.fail[name]
}

// after returns the steps since its last call.
func (f *fake) after() []string {
	steps := f.steps
	f.steps = nil
	return steps
}

// round advances the time and performs a round.
func (f *fake) round(t *testing.T, pass time.Duration) []string {
	f.clock = f.clock.Add(pass)
	f.volumes["volume"].tryRound(t.Context())
	return f.after()
}

func (f *fake) state(t *testing.T) State {
	s, ok := f.State("volume")
	require.True(t, ok)
	return s
}

func (f *fake) Paths(_ context.Context, e connect.Export) (connect.Paths, error) {
	if f.paths != nil {
		return connect.Paths{}, f.paths
	}
	if !f.connected(e) {
		return connect.Paths{NoDevice: connect.ErrNotConnected}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return connect.Paths{All: []connect.Path{{Live: !f.down[e.NSUUID]}}, Device: connect.Device{Path: "/dev/" + e.NSUUID}}, nil
}

func (f *fake) Reconnect(ctx context.Context, e connect.Export) error {
	err := errors.Join(ctx.Err(), f.step("connect "+e.NSUUID))
	if f.down[e.NSUUID] {
		return connect.ErrUnreachable
	}
	f.setConnected(e, err == nil)
	return err
}

func (f *fake) connected(e connect.Export) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[e.NSUUID]
}

func (f *fake) setConnected(e connect.Export, live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[e.NSUUID] = live
}

func (f *fake) Disconnect(_ context.Context, e connect.Export) error {
	f.setConnected(e, false)
	return f.step("disconnect " + e.NSUUID)
}

func (f *fake) Release(_ context.Context, e connect.Export) error {
	f.setConnected(e, false)
	err := f.step("release " + e.NSUUID)
	if e.NSUUID == f.hangs {
		f.hangs = ""
		close(f.released)
	}
	return err
}

// hang waits for the I/O of the replica that has just become silent, if any.
func (f *fake) hang() {
	if f.hangs != "" {
		f.mu.Lock()
		f.down[f.hangs] = true
		f.mu.Unlock()
		<-f.released
	}
}

func (f *fake) Get(context.Context, string) (witness.Record, error) {
	if f.noAPI {
		return witness.Record{}, errors.New("no API server")
	}
	return f.record, nil
}

func (f *fake) Change(_ context.Context, name, uid string, change func(replica.Witness) (replica.Witness, error)) (witness.Record, error) {
	return f.record, nil
}

func (f *fake) Start(context.Context) (replica.Decision, error) {
	err := f.step("start")
	f.running = f.running || err == nil
	return replica.Decision{}, err
}

func (f *fake) Stop(context.Context) error {
	f.hang()
	err := f.step("stop")
	f.running = err != nil
	return err
}

func (f *fake) Status(ctx context.Context) (mirror.Status, error) {
	if f.noAPI || ctx.Err() != nil {
		return mirror.Status{}, errors.New("no API server")
	}
	return f.status, f.fail["status"]
}

func (f *fake) Local() (mirror.Local, error) {
	if !f.running {
		return mirror.Local{}, mirror.ErrRefused
	}
	return mirror.Local{Device: "/dev/dm-1", Complete: f.status.Members == both, Failed: f.status.Failed != 0}, nil
}

func (f *fake) Drop(ctx context.Context, id replica.ID) error {
	if err := f.step("drop"); err != nil {
		return err
	}
	f.status = mirror.Status{Members: both &^ replica.SetOf(id), Missing: replica.SetOf(id)}
	return f.options.Release(ctx, []string{"uuid-a", "uuid-b"}[id])
}

func (f *fake) Retry(context.Context) error {
	f.hang()
	return f.step("retry")
}

func (f *fake) Add(_ context.Context, id replica.ID) error {
	if err := f.step("add"); err != nil {
		return err
	}
	f.status = mirror.Status{Members: both &^ replica.SetOf(id), Rebuilding: replica.SetOf(id), Synced: 1, Regions: 64}
	return nil
}

func (f *fake) Complete(context.Context) (bool, error) {
	f.hang()
	if err := f.step("complete"); err != nil || f.status.Synced < f.status.Regions {
		return false, err
	}
	f.status = mirror.Status{Members: both}
	return true, nil
}

func (f *fake) Abandon(context.Context) error { return f.step("abandon") }

func staged(t *testing.T) *fake {
	f := newFake(t)
	device, err := f.Stage(t.Context(), testVolume)
	require.NoError(t, err)
	assert.Equal(t, "/dev/dm-1", device)
	steps := f.after()
	slices.Sort(steps)
	require.Equal(t, []string{"connect uuid-a", "connect uuid-b", "start"}, steps)
	return f
}

// When a server dies, its replica is dropped after the grace period. When the server returns, the
// replica is rebuilt.
func TestReplicaIsRebuiltWhenItsServerReturns(t *testing.T) {
	f := staged(t)
	f.noAPI = true
	assert.Empty(t, f.round(t, time.Second), "a complete volume needs no API server")
	f.noAPI = false
	f.down["uuid-b"] = true
	assert.Empty(t, f.round(t, time.Second))
	assert.Empty(t, f.round(t, 4*time.Second))
	assert.Equal(t, []string{"drop", "release uuid-b"}, f.round(t, time.Second))
	assert.Equal(t, []string{"connect uuid-b"}, f.round(t, time.Second))
	assert.True(t, f.state(t).Degraded)
	assert.False(t, f.state(t).Waiting, "the volume works with one replica")
	assert.Contains(t, f.state(t).Problem, "server b")
	assert.Empty(t, f.round(t, 0), "attempts are not repeated immediately")
	delete(f.down, "uuid-b")
	assert.Equal(t, []string{"connect uuid-b"}, f.round(t, time.Minute))
	assert.Equal(t, []string{"add"}, f.round(t, time.Second))
	assert.Equal(t, []string{"complete"}, f.round(t, time.Second))
	assert.Equal(t, State{Degraded: true, Synced: 1, Regions: 64}, f.state(t))
	assert.Empty(t, f.round(t, time.Second))
	f.status.Synced = 64
	assert.Equal(t, []string{"complete"}, f.round(t, 5*time.Second))
	assert.Empty(t, f.round(t, 5*time.Second))
	assert.Equal(t, State{}, f.state(t))
}

// If a server returns within the grace period, its replica is not dropped. Replicas are not dropped
// while the state of the connections cannot be read.
func TestReplicaSurvivesShortOutage(t *testing.T) {
	f := staged(t)
	f.down["uuid-b"] = true
	assert.Empty(t, f.round(t, time.Second))
	delete(f.down, "uuid-b")
	assert.Empty(t, f.round(t, time.Second))
	f.down["uuid-b"] = true
	assert.Empty(t, f.round(t, time.Minute), "the time begins again")
	delete(f.down, "uuid-b")
	assert.Empty(t, f.round(t, time.Second))
	f.paths = errors.New("sysfs cannot be read")
	for range 20 {
		assert.Empty(t, f.round(t, time.Second))
	}
}

// Replicas are not dropped while the API server is unavailable. When it is available again,
// interrupted steps are completed first.
func TestNoReplicaIsDroppedWithoutTheWitness(t *testing.T) {
	f := staged(t)
	f.down["uuid-b"], f.noAPI = true, true
	f.round(t, time.Second)
	assert.Empty(t, f.round(t, 6*time.Second))
	assert.Contains(t, f.state(t).Problem, "no API server")
	assert.True(t, f.state(t).Waiting)
	f.noAPI = false
	f.fail["drop"] = errors.New("half done")
	assert.Equal(t, []string{"drop"}, f.round(t, time.Minute))
	delete(f.fail, "drop")
	assert.Equal(t, []string{"start", "drop", "release uuid-b"}, f.round(t, time.Minute))
}

// After an error on a live server, the writes are retried once. If they fail again, the server's
// replica is dropped.
func TestErrorOnALiveServerIsRetriedOnce(t *testing.T) {
	f := staged(t)
	f.status.Failed = setB
	assert.Equal(t, []string{"retry"}, f.round(t, time.Second))
	assert.Equal(t, []string{"drop", "release uuid-b"}, f.round(t, time.Second))
}

// The mirror of an ended publication is abandoned exactly once.
func TestMirrorOfAnEndedPublicationIsAbandoned(t *testing.T) {
	f := staged(t)
	f.down["uuid-b"] = true
	f.round(t, time.Second)
	f.fail["drop"] = replica.ErrFenced
	assert.Equal(t, []string{"drop", "abandon"}, f.round(t, 6*time.Second))
	assert.Empty(t, f.round(t, time.Minute))
	f.fail["stop"] = replica.ErrFenced
	require.NoError(t, f.Unstage(t.Context(), testVolume))
	assert.Equal(t, []string{"stop", "disconnect uuid-a", "disconnect uuid-b"}, f.after())
}

// The mirror is abandoned even if the publication ends while the node can reach no server and
// therefore drops no replica. Otherwise, its I/O would wait until the node is restarted.
func TestMirrorWithoutServersIsAbandoned(t *testing.T) {
	f := staged(t)
	f.down["uuid-a"], f.down["uuid-b"] = true, true
	f.round(t, time.Second)
	assert.Empty(t, f.round(t, 6*time.Second))
	assert.True(t, f.state(t).Waiting)
	assert.Equal(t, map[string]State{"volume": f.state(t)}, f.States())
	f.fail["status"] = &mirror.DecisionError{Decision: replica.Decision{Action: replica.Refuse, Reason: replica.Fenced}}
	assert.Equal(t, []string{"abandon"}, f.round(t, time.Minute))
}

func TestUnstageStopsTheMirror(t *testing.T) {
	f := staged(t)
	f.fail["stop"] = mirror.ErrBusy
	require.ErrorIs(t, f.Unstage(t.Context(), testVolume), mirror.ErrBusy)
	assert.Equal(t, []string{"stop"}, f.after(), "the replicas stay connected")
	delete(f.fail, "stop")
	f.restart(t)
	for range 2 {
		require.NoError(t, f.Unstage(t.Context(), testVolume))
		assert.Equal(t, []string{"stop", "disconnect uuid-a", "disconnect uuid-b"}, f.after())
	}
	_, ok := f.State("volume")
	assert.False(t, ok)
}

// The healer changes nothing while another process may still change the mirrors.
func TestHealerWaitsForTheEarlierProcess(t *testing.T) {
	f := staged(t)
	busy := errors.New("another process")
	f.Exclusive = func() error { return busy }
	f.down["uuid-b"] = true
	assert.Empty(t, f.round(t, time.Minute))
	assert.Contains(t, f.state(t).Problem, "another process")
	_, err := f.Stage(t.Context(), testVolume)
	require.ErrorIs(t, err, mirror.ErrWait)
	require.ErrorIs(t, f.Unstage(t.Context(), testVolume), busy)
	assert.Empty(t, f.after())
	busy = nil
	f.round(t, time.Second)
	assert.Equal(t, []string{"drop", "release uuid-b"}, f.round(t, time.Minute))
}

// A restarted process first completes the steps that the previous process has begun.
func TestRestartedHealerCompletesInterruptedSteps(t *testing.T) {
	f := staged(t)
	f.restart(t)
	require.NoError(t, f.Watch(testVolume))
	assert.Equal(t, []string{"start"}, f.round(t, time.Second))
	assert.Empty(t, f.round(t, time.Second))
	require.NoError(t, f.Watch(testVolume))
	assert.Empty(t, f.round(t, time.Second))
}

// If the mirror permits it, a volume starts even if one of its servers is unreachable.
func TestVolumeIsStagedWithoutOneServer(t *testing.T) {
	f := newFake(t)
	f.down["uuid-b"] = true
	_, err := f.Stage(t.Context(), testVolume)
	require.NoError(t, err)
	f.fail["start"] = mirror.ErrWait
	_, err = f.Stage(t.Context(), testVolume)
	require.ErrorIs(t, err, mirror.ErrWait)
	require.ErrorContains(t, err, "server b")

	other := testVolume
	other.Generation = 2
	_, err = f.Stage(t.Context(), other)
	require.ErrorIs(t, err, mirror.ErrBusy)
	wrong := testVolume
	wrong.Name, wrong.Replicas = "wrong", []Replica{{UUID: "uuid-a", Export: connect.Export{NSUUID: "uuid-b"}}}
	_, err = f.Stage(t.Context(), wrong)
	require.ErrorIs(t, err, mirror.ErrInvalid)
}
