package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// A Connector reports the state of connections, and restores them. [connect.Watcher] implements it.
type Connector interface {
	Paths(ctx context.Context, e connect.Export) (connect.Paths, error)
	Reconnect(ctx context.Context, e connect.Export) error
}

// A Mounter reads mounts and mounted file systems. *mount.Mounter implements it.
type Mounter interface {
	Table(ctx context.Context) (mount.Table, error)
	Probe(ctx context.Context, p mount.Point) error
}

// Options are the options of a Monitor.
type Options struct {
	Source    Source
	Connector Connector
	Mounter   Mounter
	Metrics   *metrics.Metrics // nil for none
	Log       *slog.Logger
	// Interval is the time between two checks of all volumes.
	Interval time.Duration
	// StatusFile is the file where the monitor reports the findings of each round, as JSON of type
	// inventory.Staged. If it is empty, the monitor writes no file.
	StatusFile string
}

const (
	// readTimeout limits the reads for one volume in a round. The kernel either responds within
	// milliseconds or hangs.
	readTimeout = 5 * time.Second
	// reconnectTimeout limits an attempt to restore connections, because calls for the volume are
	// aborted during the attempt.
	reconnectTimeout = 20 * time.Second
	// longestPause limits the time between two attempts. This time doubles with each failure.
	longestPause = 5 * time.Minute
	// attemptsAtOnce is the maximum number of volumes that are reconnected concurrently.
	attemptsAtOnce = 4
)

// A Monitor watches volumes. A nil *Monitor has no findings. A Monitor is safe for concurrent use.
type Monitor struct {
	source    Source
	connector Connector
	mounter   Mounter
	metrics   *metrics.Metrics
	log       *slog.Logger
	interval  time.Duration
	timeout   time.Duration // limits the read of a volume's state
	now       func() time.Time

	statusFile string
	unreported bool // the status file could not be written

	reads    operation.Group // reads of the source, and writes to the status file
	adopted  bool
	failed   bool               // the last round could not read the list of volumes or mounts
	attempts map[string]attempt // by volume id
	logged   map[string]State   // the last logged state, by volume id

	mu     sync.Mutex
	states map[string]State // by volume id
	forgot map[string]bool  // volumes that a call changed while the current round was examining them
}

// New returns a monitor that has not checked anything yet.
func New(o Options) *Monitor {
	return &Monitor{
		source: o.Source, connector: o.Connector, mounter: o.Mounter, metrics: o.Metrics, log: o.Log, interval: o.Interval, statusFile: o.StatusFile,
		timeout: readTimeout, now: time.Now, attempts: map[string]attempt{}, logged: map[string]State{}, states: map[string]State{}, forgot: map[string]bool{},
	}
}

// Run checks all volumes every interval until ctx ends. Finally, it removes the status file, which
// would otherwise become outdated.
func (m *Monitor) Run(ctx context.Context) {
	m.removeStatus()
	defer m.removeStatus()
	ticker := time.NewTicker(m.interval)
	defer ticker.Stop()
	for {
		m.Check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// State returns the result of the last check of a volume. ok is false if the monitor has not
// checked the volume since the process started or a call changed the volume.
func (m *Monitor) State(volumeID string) (s State, ok bool) {
	if m == nil {
		return s, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok = m.states[volumeID]
	return s, ok
}

// States returns the states of all checked volumes, ordered by volume id.
func (m *Monitor) States() []State {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.states), func(a, b State) int { return cmp.Compare(a.Volume.ID, b.Volume.ID) })
}

// Forget removes the state of a volume. The node service calls Forget after a CSI call has changed
// the volume. The monitor checks the volume again in its next round.
func (m *Monitor) Forget(volumeID string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.states, volumeID)
	m.forgot[volumeID] = true
}

// Check checks all volumes once, and restores connections. Only one Check may run at a time; Run
// also calls Check.
func (m *Monitor) Check(ctx context.Context) {
	m.mu.Lock()
	clear(m.forgot)
	m.mu.Unlock()
	volumes, mounts, err := m.read(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !m.failed {
			m.log.Error("cannot check the node's volumes; trying again", "every", m.interval, "error", err)
		}
		m.failed = true
		return
	}
	m.failed = false
	var wg sync.WaitGroup
	found := make([]State, len(volumes))
	for i, v := range volumes {
		wg.Go(func() {
			if !m.source.Busy(v.ID) {
				found[i] = m.look(ctx, v, mounts)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	m.keep(volumes, found)
	m.reconnect(ctx, found)
	m.export()
	m.reportStatus(ctx, volumes)
}

// read lists the volumes and the mounts.
func (m *Monitor) read(ctx context.Context) ([]Volume, mount.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	mounts, err := m.mounter.Table(ctx)
	if err != nil {
		return nil, mounts, err
	}
	volumes, err := operation.Share(ctx, &m.reads, "list of staged volumes", func() ([]Volume, error) {
		if !m.adopted {
			if err := m.source.Adopt(mounts.Paths()); err != nil {
				m.log.Warn("volumes staged by an earlier release may remain unmonitored", "error", err)
			}
			m.adopted = true
		}
		return m.source.Staged()
	})
	return volumes, mounts, err
}

// keep stores the new states, and logs the changes. If a call changed a volume during the round,
// the volume keeps its previous state.
func (m *Monitor) keep(volumes []Volume, found []State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	staged := map[string]bool{}
	for _, v := range volumes {
		staged[v.ID] = true
	}
	maps.DeleteFunc(m.states, func(id string, _ State) bool { return !staged[id] })
	maps.DeleteFunc(m.logged, func(id string, _ State) bool { return !staged[id] })
	maps.DeleteFunc(m.attempts, func(id string, _ attempt) bool { return !staged[id] })
	for i, s := range found {
		if s.Volume.ID == "" || m.forgot[s.Volume.ID] || m.source.Busy(s.Volume.ID) {
			found[i] = State{}
			continue
		}
		m.logChange(m.logged[s.Volume.ID], s)
		m.logged[s.Volume.ID], m.states[s.Volume.ID] = s, s
	}
}

// logChange logs a line if the findings have changed.
func (m *Monitor) logChange(before, now State) {
	if before.kinds() == now.kinds() {
		return
	}
	log := m.log.With("volume", now.Volume.ID, "export", now.Volume.Export.String())
	if now.Kind() == OK {
		log.Info("volume recovered", "was", before.Kind())
		return
	}
	level := slog.LevelError
	if k := now.Kind(); k == Unknown || k == PathsLost {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level, "volume has a problem", "state", now.Kind(), "was", before.Kind(), "paths", now.Live, "expected", now.Expected, "findings", now.text())
}

// export records all states as metrics.
func (m *Monitor) export() {
	var all []metrics.NodeVolume
	for _, s := range m.States() {
		all = append(all, metrics.NodeVolume{
			Target: s.Volume.Target, Volume: s.Volume.UUID, State: string(s.Kind()), ReadOnly: s.Has(ReadOnly), Live: s.Live, Expected: s.Expected,
		})
	}
	m.metrics.NodeVolumes(all)
}
