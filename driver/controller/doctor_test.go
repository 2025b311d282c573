package controller

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// atOnce replaces the wait between two inspections. It returns immediately.
func atOnce(context.Context) error { return nil }

// examination returns an examination of the bench's target over a separate connection.
func (b *crashBench) examination() doctor.Examination {
	c := b.Controller.targets.byName["t0"].Config
	return doctor.Examination{
		Targets: []doctor.Target{{Service: volume.NewTarget(c).Service(b.target.rpc)}}, Hosts: HostOf, Timeout: time.Minute, Wait: atOnce,
	}
}

// eachCall runs f for each call, with exports over both transports.
func eachCall(t *testing.T, f func(t *testing.T, b *crashBench, call csiCall)) {
	for _, transport := range []string{config.TargetNVMeTCP, config.TargetISCSI} {
		for _, call := range csiCalls {
			if transport == config.TargetNVMeTCP || call.attached {
				t.Run(transport+"/"+call.name, func(t *testing.T) { f(t, newCrashBench(t, transport), call) })
			}
		}
	}
}

// TestCallsInFlightAreNotReported examines the target before every RPC of every CSI call. The
// controller's check recognizes the call by its locks. The command spdk-csi doctor cannot see these
// locks, but its second inspection finds no traces of the call.
func TestCallsInFlightAreNotReported(t *testing.T) {
	examined := 0
	eachCall(t, func(t *testing.T, b *crashBench, call csiCall) {
		do := call.prepare(t, b)
		var mu sync.Mutex // the call may send several RPCs at once
		var interim [][]doctor.Finding
		handler := b.target.gateway.Config.Handler
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			func() {
				mu.Lock()
				defer mu.Unlock()
				e := b.examination()
				e.Held = b.locks.Held
				found, err := e.Run(r.Context())
				assert.NoError(t, err)
				assert.Empty(t, found, "a call in flight holds the lock")
				e.Held, e.Wait = nil, nil
				found, err = e.Run(r.Context())
				assert.NoError(t, err)
				interim = append(interim, found)
				examined++
			}()
			handler.ServeHTTP(w, r)
		}))
		defer gateway.Close()
		before := b.target.gateway
		b.target.gateway = gateway
		b.startController(t)
		b.target.gateway = before
		_, err := do(t.Context())
		require.NoError(t, err)
		after, err := b.examination().Run(t.Context())
		require.NoError(t, err)
		assert.Empty(t, after)
		for _, found := range interim {
			assert.Empty(t, doctor.Confirmed(found, after))
		}
	})
	t.Logf("examined before each of %d RPCs", examined)
}

// atomicCalls lists the calls that leave nothing behind, regardless of which RPC is interrupted.
var atomicCalls = []string{"create", "create thick, limited", "expand", "modify", "snapshot", "delete a snapshot"}

// TestDoctorRepairsCrashLeftovers kills the controller after every RPC of CSI calls that make
// several changes, and repairs what is left behind. After the repair, a retry of the call must
// succeed, and in the end, nothing may be left behind.
func TestDoctorRepairsCrashLeftovers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	repairedBy := 0
	for _, transport := range []string{config.TargetNVMeTCP, config.TargetISCSI} {
		for _, call := range csiCalls {
			if transport == config.TargetISCSI && !call.attached || slices.Contains(atomicCalls, call.name) {
				continue
			}
			t.Run(transport+"/"+call.name, func(t *testing.T) {
				for at := 1; ; at++ {
					b := newCrashBench(t, transport)
					start := b.state(t)
					do := call.prepare(t, b)
					b.target.strike(at, killedAfter)
					_, _ = do(t.Context())
					b.target.mu.Lock()
					reached := b.target.count >= at
					b.target.mu.Unlock()
					b.target.strike(0, "")
					if !reached {
						return
					}
					found, err := b.examination().Run(t.Context())
					require.NoError(t, err)
					for _, f := range found {
						if f.Repair != "" {
							require.NoError(t, f.Apply(t.Context()), f.Object)
							repairedBy++
						}
					}
					b.startController(t)
					b.until(t, "again", func(ctx context.Context) error { _, err := do(ctx); return err })
					b.deleteAll(t)
					assert.Equal(t, start, b.state(t), "nothing is left")
				}
			})
		}
	}
	assert.Positive(t, repairedBy)
	t.Logf("repaired %d leftovers", repairedBy)
}

// The controller's periodic check counts its findings, logs each finding once, and changes nothing
// on the target.
func TestPeriodicCheckChangesNothing(t *testing.T) {
	b := newCrashBench(t, config.TargetNVMeTCP)
	var logs logBuffer
	b.log = slog.New(slog.NewTextHandler(&logs, nil))
	m := metrics.New("test")
	b.Observe(m)
	k := &checker{wait: atOnce}
	check := func() string {
		k.check(t.Context(), b.Controller)
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		return w.Body.String()
	}
	assert.Contains(t, check(), `spdk_csi_findings{kind="leaked-export",target="t0"} 0`)
	assert.Empty(t, logs.String())

	v := b.create(t, "pvc-1", 4*mib)
	_, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	uuid := v.GetVolumeId()[len("t0:"):]
	require.NoError(t, b.target.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: uuid}))
	before := b.state(t)
	for range 2 {
		text := check()
		assert.Contains(t, text, `spdk_csi_findings{kind="leaked-export",target="t0"} 1`)
		assert.Regexp(t, `spdk_csi_last_check_timestamp_seconds{target="t0"} [1-9]`, text)
	}
	assert.Equal(t, before, b.state(t))
	assert.Equal(t, 1, logs.count("check found a problem"))
	require.NoError(t, b.target.rpc.NVMfDeleteSubsystem(t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: export.NQN(uuid)}))
	assert.Contains(t, check(), `spdk_csi_findings{kind="leaked-export",target="t0"} 0`)
	assert.Equal(t, 1, logs.count("problem resolved"))

	k.targets = append(k.targets, "former")
	m.Findings("former", map[string]int{"orphan": 1})
	assert.NotContains(t, check(), "former")
	b.credentialsFile = ""
	check()
	assert.Equal(t, 1, logs.count("targets are not checked"))
}

type logBuffer struct{ strings.Builder }

func (l *logBuffer) count(message string) int { return strings.Count(l.String(), message) }
