package snapshot

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// A stage is a point during a snapshot where the proxy is killed: before or after the target
// receives a call.
type stage struct {
	name    string
	moment  string   // before or after
	methods []string // the call has one of these methods, which depends on the release
	params  string   // a part of the call's parameters
	lost    bool     // the call does not reach the target
}

const (
	setState     = "nvmf_subsystem_listener_set_ana_state"
	takeSnapshot = "bdev_lvol_snapshot"
)

var drains = []string{"nvmf_subsystem_set_ns_ana_group", "nvmf_subsystem_add_ns"}

var stages = []stage{
	{"before the freeze", before, []string{setState}, "inaccessible", true},
	{"freezing", before, []string{setState}, "inaccessible", false},
	{"frozen", after, []string{setState}, "inaccessible", false},
	{"before the drain", before, drains, "", true},
	{"draining", before, drains, "", false},
	{"drained", after, drains, "", false},
	{"before the snapshot", before, []string{takeSnapshot}, "", true},
	{"taking the snapshot", before, []string{takeSnapshot}, "", false},
	{"taken", after, []string{takeSnapshot}, "", false},
	{"before the thaw", before, []string{setState}, "optimized", true},
	{"thawing", before, []string{setState}, "optimized", false},
	{"thawed", after, []string{setState}, "optimized", false},
}

// The proxy is killed at every stage of a snapshot, and restarted as systemd would restart it.
// Meanwhile, the writer continues. Afterwards, no path is inaccessible, the journal is empty, and
// each snapshot is either complete or missing.
func TestProxyKilledAtAnyStageThawsVolumes(t *testing.T) {
	w := newEnvironment(newTarget(t))
	name := w.makeVolume("thin")
	nqn, address := w.share(name)
	writer := startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, 1)
	writer.progress(100)
	page, states := w.firstPage(), w.anaStates()
	var worst time.Duration
	for i, s := range stages {
		var killed atomic.Bool
		w.proxy.ready()
		w.relay.watch(func(moment, method string, params json.RawMessage) (lost bool) {
			if moment != s.moment || !slices.Contains(s.methods, method) || !strings.Contains(string(params), s.params) || !killed.CompareAndSwap(false, true) {
				return false
			}
			w.proxy.kill()
			return s.lost
		})
		writer.longest()
		snapshot := fmt.Sprint("snapshot-", i)
		err := w.proxy.call(t.Context(), "spdkgate_lvol_snapshot", map[string]any{"snapshots": []any{map[string]any{"lvol_name": name, "snapshot_name": snapshot}}}, nil)
		require.True(t, killed.Load(), "%s: the stage was not reached: %v", s.name, err)
		writer.progress(5)
		stall := writer.longest()
		worst = max(worst, stall)
		t.Logf("%-20s the longest write took %v; the call: %v", s.name, stall.Round(time.Millisecond), err)
		w.waitUntilThawed(s.name, states)
		require.True(t, page == w.firstPage(), "%s: the store's first metadata page was overwritten", s.name)

		// The caller can determine whether the snapshot exists, and create a missing snapshot with
		// a second call.
		if !w.exists(snapshot) {
			w.proxy.ready()
			require.NoError(t, w.proxy.call(t.Context(), "spdkgate_lvol_snapshot", map[string]any{"snapshots": []any{map[string]any{"lvol_name": name, "snapshot_name": snapshot}}}, nil), s.name)
		}
		require.True(t, w.exists(snapshot), s.name)
		if i >= keep {
			require.NoError(t, w.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: fmt.Sprintf("%s/snapshot-%d", store, i-keep)}))
		}
	}
	writer.stop()
	t.Logf("the longest write of all stages took %v", worst.Round(time.Millisecond))
	assert.Less(t, worst, restartDelay+5*time.Second, "a write waited too long")
	w.kill()
	w.start()
	require.True(t, w.loads(), "the store does not load")
	w.verify(name, writer.writes(), writer.acked(), writer.begun())
}

// waitUntilThawed waits until the ANA states are as specified and the journal is empty.
func (w *environment) waitUntilThawed(stage string, states map[string][]string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		journal, err := filepath.Glob(w.at("frozen/*"))
		require.NoError(w.t, err)
		return assert.ObjectsAreEqual(states, w.anaStates()) && !slices.ContainsFunc(journal, isEntry)
	}, long, 10*time.Millisecond, "%s: the ANA states changed, or the journal is not empty", stage)
}

// isEntry reports whether a file in the journal's directory describes a freeze in progress.
func isEntry(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0 && strings.HasSuffix(path, ".json")
}

func (g *target) exists(snapshot string) bool {
	g.t.Helper()
	lvols, err := g.rpc.BdevLvolGetLvols(g.t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(g.t, err)
	return slices.ContainsFunc(lvols, func(l spdkrpc.LvolInfo) bool { return l.Name == snapshot })
}
