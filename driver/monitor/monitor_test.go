package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// A fakeNode is a node with staged volumes. It replaces the node service and package connect, and
// keeps its mount table in a file.
type fakeNode struct {
	*mount.Mounter
	t     *testing.T
	table string // path of the mount table
	log   *drivertest.Log
	clock time.Time

	mu          sync.Mutex
	volumes     []Volume
	adopted     [][]string
	err         error // returned by Staged and Adopt
	busy        bool
	gone        bool // the volume was unstaged after it was listed
	held        bool
	paths       map[string]connect.Paths // by NQN
	pathsErr    error
	probe       error
	hang        bool
	reconnects  []string
	reconnected error
	onReconnect func()
}

func newFakeNode(t *testing.T) (*Monitor, *fakeNode) {
	f := &fakeNode{t: t, table: filepath.Join(t.TempDir(), "mountinfo"), log: new(drivertest.Log), clock: time.Unix(1e9, 0), paths: map[string]connect.Paths{}}
	f.mounts()
	f.Mounter = mount.New(mount.Options{MountInfo: f.table})
	m := New(Options{Source: f, Connector: f, Mounter: f, Metrics: metrics.New("v1"), Log: slog.New(slog.NewTextHandler(f.log, nil)), Interval: 30 * time.Second})
	m.now = func() time.Time { return f.clock }
	m.timeout = 10 * time.Second
	return m, f
}

// mounts writes the mount table, with a line "path number options superblock-options" for each
// mount.
func (f *fakeNode) mounts(lines ...string) {
	text := ""
	for _, l := range lines {
		field := strings.Fields(l)
		text += fmt.Sprintf("36 35 %s / %s %s shared:1 - ext4 /dev/x %s\n", field[1], field[0], field[2], field[3])
	}
	require.NoError(f.t, os.WriteFile(f.table, []byte(text), 0o600))
}

func (f *fakeNode) Staged() ([]Volume, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.volumes), f.err
}

func (f *fakeNode) Busy(string) bool { f.mu.Lock(); defer f.mu.Unlock(); return f.busy }

func (f *fakeNode) Hold(id string) (Volume, func(), bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.volumes, func(v Volume) bool { return v.ID == id })
	if f.busy || f.gone || i < 0 {
		return Volume{}, nil, false
	}
	f.held = true
	return f.volumes[i], func() { f.held = false }, true
}

func (f *fakeNode) Adopt(mounts []string) error {
	f.adopted = append(f.adopted, mounts)
	return f.err
}

func (f *fakeNode) Paths(ctx context.Context, e connect.Export) (connect.Paths, error) {
	if f.hang {
		<-ctx.Done()
		return connect.Paths{}, connect.ErrTimeout
	}
	return f.paths[e.NQN], f.pathsErr
}

func (f *fakeNode) Reconnect(_ context.Context, e connect.Export) error {
	assert.True(f.t, f.held, "calls are kept away meanwhile")
	f.mu.Lock()
	f.reconnects = append(f.reconnects, e.NQN)
	f.mu.Unlock()
	if f.onReconnect != nil {
		f.onReconnect()
	}
	return f.reconnected
}

func (f *fakeNode) Probe(ctx context.Context, p mount.Point) error {
	if errors.Is(f.probe, context.DeadlineExceeded) {
		<-ctx.Done()
	}
	return f.probe
}

const id, nqn = "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", "nqn.2026-11.io.spdkgate:v"

// stage adds a volume with paths in these states, and with a mounted, working file system.
func (f *fakeNode) stage(expected int, states ...string) {
	f.volumes = []Volume{{ID: id, Target: "t0", UUID: id[3:], Export: connect.Export{Transport: connect.TCP, NQN: nqn}, Path: "/staged", Targets: []string{"/pod"}}}
	f.mounts("/staged 0:77 rw rw", "/pod 0:77 rw rw")
	f.has(expected, states...)
}

func (f *fakeNode) has(expected int, states ...string) {
	p := connect.Paths{Expected: expected}
	for i, s := range states {
		if s != "gone" {
			p.All = append(p.All, connect.Path{Name: fmt.Sprintf("nvme%d", i), Address: "192.0.2.1:4420", State: s, Live: s == "live"})
		}
	}
	p.GivenUp = max(0, expected-len(p.All))
	if len(p.All) == 0 {
		p.NoDevice = connect.ErrNotConnected
	}
	f.paths[nqn] = p
}

// removed is an unused device number.
const removed = "259:1048000"

func TestMonitorReportsEachFinding(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(f *fakeNode)
		want   []Kind // kinds of the findings
		says   string
	}{
		{"well", func(*fakeNode) {}, nil, ""},
		{"one of two paths connecting", func(f *fakeNode) { f.has(2, "live", "connecting") }, []Kind{PathsLost}, "1 of 2 paths work: check the target's other addresses and the network (nvme0 live at 192.0.2.1:4420; nvme1 connecting"},
		{"one of two paths given up", func(f *fakeNode) { f.has(2, "live", "gone") }, []Kind{PathsLost}, "1 abandoned by the kernel"},
		{"more paths than expected", func(f *fakeNode) { f.has(1, "live", "live") }, nil, ""},
		{"no path live", func(f *fakeNode) { f.has(2, "connecting", "resetting") }, []Kind{Connecting}, "I/O is waiting for it"},
		{"no path live, probe would hang", func(f *fakeNode) { f.has(1, "connecting"); f.probe = context.DeadlineExceeded }, []Kind{Connecting}, "I/O is waiting"},
		{"no path left", func(f *fakeNode) { f.has(2, "gone", "gone") }, []Kind{NotConnected}, "the kernel has given up on the target"},
		{"no path left, dead mounts", func(f *fakeNode) {
			f.has(1, "gone")
			f.mounts("/staged "+removed+" rw rw", "/pod "+removed+" rw rw")
		}, []Kind{NotConnected, DeadMount, DeadMount}, "the device below /pod was removed"},
		{"connected again, dead mount", func(f *fakeNode) { f.mounts("/staged " + removed + " rw rw") }, []Kind{DeadMount}, "delete the pods that use the volume"},
		{"another pod's dead mount", func(f *fakeNode) { f.mounts("/staged 0:77 rw rw", "/pod "+removed+" rw rw") }, []Kind{DeadMount}, "/pod"},
		{"not mounted", func(f *fakeNode) { f.mounts() }, []Kind{NotMounted}, "nothing is mounted at /staged"},
		{"raw block", func(f *fakeNode) { f.mounts(); f.volumes[0].Path = "" }, nil, ""},
		{"shut down", func(f *fakeNode) { f.mounts("/staged 0:77 rw rw,shutdown") }, []Kind{ShutDown}, "shut the file system at /staged down"},
		{"read-only", func(f *fakeNode) { f.mounts("/staged 0:77 rw ro") }, []Kind{ReadOnly}, "read-only after errors"},
		{"read-only and a path lost", func(f *fakeNode) { f.has(2, "live", "gone"); f.mounts("/staged 0:77 rw emergency_ro") }, []Kind{ReadOnly, PathsLost}, ""},
		{"mounted read-only", func(f *fakeNode) { f.mounts("/staged 0:77 ro ro") }, nil, ""},
		{"file system fails", func(f *fakeNode) { f.probe = mount.ErrBroken }, []Kind{ShutDown}, "the file system at /staged fails"},
		{"file system hangs", func(f *fakeNode) { f.probe = context.DeadlineExceeded }, []Kind{Hanging}, "the file system at /staged does not respond"},
		{"sysfs hangs", func(f *fakeNode) { f.hang = true }, []Kind{Hanging}, "does not report the state of the connection"},
		{"sysfs unreadable", func(f *fakeNode) { f.pathsErr = os.ErrPermission }, []Kind{Unknown}, "cannot be read"},
		{"another volume", func(f *fakeNode) {
			p := f.paths[nqn]
			p.NoDevice = connect.ErrNoNamespace
			f.paths[nqn] = p
		}, []Kind{NoNamespace}, "does not have the volume"},
		{"ambiguous", func(f *fakeNode) { p := f.paths[nqn]; p.NoDevice = connect.ErrAmbiguous; f.paths[nqn] = p }, []Kind{Unknown}, "cannot be found"},
		{"mapping of the device", func(f *fakeNode) {
			f.volumes[0].OnAnother = func(device string) (bool, error) { return device != "/dev/nvme0n1", nil }
			p := f.paths[nqn]
			p.Device.Path = "/dev/nvme0n1"
			f.paths[nqn] = p
		}, nil, ""},
		{"mapping of a removed device", func(f *fakeNode) { f.volumes[0].OnAnother = func(string) (bool, error) { return true, nil } }, []Kind{DeadMount}, "below the volume's mapping"},
		{"mapping unreadable", func(f *fakeNode) {
			f.volumes[0].OnAnother = func(string) (bool, error) { return false, os.ErrPermission }
		}, []Kind{Unknown}, "mapping cannot be read"},
		{"mapping hangs", func(f *fakeNode) {
			f.volumes[0].OnAnother = func(string) (bool, error) { <-f.t.Context().Done(); return false, nil }
		}, []Kind{Hanging}, "the volume's mapping"},
		{"record unreadable", func(f *fakeNode) { f.volumes[0].Err = errors.New("version 7") }, []Kind{Unknown}, "version 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, f := newFakeNode(t)
			f.stage(2, "live", "live")
			m.Check(t.Context())
			s, ok := m.State(id)
			require.True(t, ok)
			require.Empty(t, s.Findings)
			assert.Empty(t, f.log.String(), "no line is logged for a healthy volume")

			tt.change(f)
			m.timeout = 50 * time.Millisecond
			f.reconnected = connect.ErrUnreachable
			m.Check(t.Context())
			s, ok = m.State(id)
			require.True(t, ok)
			var kinds []Kind
			for _, finding := range s.Findings {
				kinds = append(kinds, finding.Kind)
			}
			assert.Equal(t, tt.want, kinds)
			assert.Contains(t, s.text(), tt.says)
			if len(tt.want) > 0 {
				assert.Equal(t, tt.want[0], s.Kind())
				assert.Equal(t, 1, strings.Count(f.log.String(), "volume has a problem"))
				level := "level=ERROR"
				if s.Kind() == PathsLost || s.Kind() == Unknown {
					level = "level=WARN"
				}
				assert.Contains(t, f.log.String(), level)
			}
			assert.Contains(t, scrape(m), `spdk_csi_node_volume_state{state="`+string(s.Kind())+`",target="t0",volume="`+id[3:]+`"} 1`)
		})
	}
}

func scrape(m *Monitor) string {
	w := httptest.NewRecorder()
	m.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// The monitor logs a line only when the state of a volume changes.
func TestOnlyChangesAreLogged(t *testing.T) {
	m, f := newFakeNode(t)
	f.stage(2, "live", "connecting")
	for range 3 {
		m.Check(t.Context())
	}
	assert.Equal(t, 1, strings.Count(f.log.String(), "msg="), f.log.String())
	assert.Contains(t, f.log.String(), `volume=`+id)
	f.has(2, "connecting", "connecting")
	m.Forget(id) // a call changed the volume, but not its paths
	m.Check(t.Context())
	assert.Equal(t, 2, strings.Count(f.log.String(), "msg="), f.log.String())
	assert.Contains(t, f.log.String(), "state=connecting was=paths_lost paths=0 expected=2")
	f.has(2, "live", "live")
	m.Forget(id)
	for range 3 {
		m.Check(t.Context())
	}
	assert.Equal(t, 3, strings.Count(f.log.String(), "msg="), f.log.String())
	assert.Contains(t, f.log.String(), `level=INFO msg="volume recovered"`)

	f.err = errors.New("disk full")
	for range 3 {
		m.Check(t.Context())
	}
	assert.Equal(t, 4, strings.Count(f.log.String(), "msg="), f.log.String())
	_, ok := m.State(id)
	assert.True(t, ok, "the previous state is kept")
}

// Findings are discarded if a call changed the volume during or after the check.
func TestFindingsOnChangingVolumesAreDiscarded(t *testing.T) {
	m, f := newFakeNode(t)
	f.stage(1, "connecting")
	m.Check(t.Context())
	m.Forget(id)
	_, ok := m.State(id)
	assert.False(t, ok)
	assert.Empty(t, m.States())
	f.busy = true
	m.Check(t.Context())
	_, ok = m.State(id)
	assert.False(t, ok, "a call is working on it")
	f.busy = false
	m.Check(t.Context())
	_, ok = m.State(id)
	assert.True(t, ok)

	// A call for the volume ends while the monitor is checking the volume.
	f.stage(1, "live")
	m.mounter = interrupted{f, func() { m.Forget(id) }}
	m.Check(t.Context())
	_, ok = m.State(id)
	assert.False(t, ok, "the finding may be older than the call")
	m.mounter = f
	m.Check(t.Context())
	assert.Len(t, m.States(), 1)
	f.volumes = nil
	m.Check(t.Context())
	assert.Empty(t, m.States(), "unstaged")
	assert.NotContains(t, scrape(m), id[3:])
	assert.Len(t, f.adopted, 1, "only once")
	assert.Equal(t, []string{"/staged", "/pod"}, f.adopted[0])
}

// interrupted is a Connector that calls a function while the monitor is checking a volume.
type interrupted struct {
	Mounter
	during func()
}

func (i interrupted) Probe(ctx context.Context, p mount.Point) error {
	i.during()
	return i.Mounter.Probe(ctx, p)
}

// The monitor restores connections that the kernel has given up on, with increasing pauses between
// attempts, but never while a call is working on the volume.
func TestLostConnectionsAreRestored(t *testing.T) {
	m, f := newFakeNode(t)
	f.stage(2, "live", "connecting")
	m.Check(t.Context())
	assert.Empty(t, f.reconnects, "the kernel reconnects by itself")

	f.has(2, "live", "gone")
	f.gone = true
	m.Check(t.Context())
	assert.Empty(t, f.reconnects, "it is being unstaged")
	f.gone = false
	f.reconnected = connect.ErrUnreachable
	var pauses []time.Duration
	for last := f.clock; len(pauses) < 8; f.clock = f.clock.Add(30 * time.Second) {
		n := len(f.reconnects)
		m.Check(t.Context())
		if len(f.reconnects) > n {
			pauses = append(pauses, f.clock.Sub(last))
			last = f.clock
		}
	}
	const second = time.Second
	assert.Equal(t, []time.Duration{0, 30 * second, 60 * second, 120 * second, 240 * second, 300 * second, 300 * second, 300 * second}, pauses)
	assert.Equal(t, 1, strings.Count(f.log.String(), "cannot reconnect a volume"), f.log.String())
	assert.Contains(t, scrape(m), `spdk_csi_node_reconnects_total{outcome="failed"} 8`)

	f.clock = f.clock.Add(time.Hour)
	f.reconnected, f.reconnects = nil, nil
	f.onReconnect = func() { f.has(2, "live", "live") }
	m.Check(t.Context())
	assert.Equal(t, []string{nqn}, f.reconnects)
	assert.Contains(t, f.log.String(), "volume connected again")
	assert.False(t, f.held)
	m.Check(t.Context())
	assert.Len(t, f.reconnects, 1)
	assert.Contains(t, scrape(m), `spdk_csi_node_reconnects_total{outcome="ok"} 1`)
	assert.Empty(t, m.attempts)

	f.onReconnect = nil
	f.has(2, "gone", "gone")
	m.Check(t.Context())
	assert.Len(t, f.reconnects, 2, "the first attempt is immediate, as before")
	for range 100 { // the attempts succeed, but a connection is still missing
		f.clock = f.clock.Add(30 * time.Second)
		m.Check(t.Context())
	}
	assert.Less(t, len(f.reconnects), 20)
	assert.Equal(t, 2, strings.Count(f.log.String(), "volume connected again"))
	f.volumes = nil
	m.Check(t.Context())
	assert.Empty(t, m.attempts, "unstaged")
}

func TestMonitorChecksPeriodically(t *testing.T) {
	m, f := newFakeNode(t)
	m.interval = time.Millisecond
	f.stage(1, "connecting")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { m.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return len(m.States()) == 1 }, time.Minute, time.Millisecond)
	cancel()
	<-ended

	var none *Monitor
	none.Forget(id)
	_, ok := none.State(id)
	assert.False(t, ok)
	assert.Empty(t, none.States())
}
