package quiesce

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// newGroupBench creates a bench with exported volumes.
func newGroupBench(t *testing.T, volumes ...string) *bench {
	b := newBench(t, "v26.05")
	for _, v := range volumes {
		b.volume(v)
		b.export(v, true)
	}
	b.q.grace = shortGrace
	return b
}

// existing returns how many of the requested snapshots exist.
func (b *bench) existing(wanted []Snapshot) (n int) {
	for _, s := range wanted {
		if b.exists(s.Name) {
			n++
		}
	}
	return n
}

// Each stage of a group snapshot is complete for all volumes before the next stage begins.
func TestGroupStagesDoNotOverlap(t *testing.T) {
	for release, drain := range map[string]string{"v26.05": "nvmf_subsystem_set_ns_ana_group", "v24.01": "nvmf_subsystem_add_ns"} {
		t.Run(release, func(t *testing.T) {
			const size = 32
			b := newBench(t, release)
			var volumes []string
			for i := range size {
				volumes = append(volumes, fmt.Sprint("v", i))
				b.volume(volumes[i])
				b.export(volumes[i], true)
			}
			b.target.ForgetCalls()
			taken, err := b.take(wantAll(volumes, "s"))
			require.NoError(t, err)
			require.Len(t, taken, size)
			var stages []string
			for _, c := range b.target.Calls() {
				stage := ""
				switch c.Method {
				case "nvmf_subsystem_listener_set_ana_state":
					if stage = "thaw"; c.Params["ana_state"] == inaccessible {
						stage = "freeze"
					}
				case drain:
					stage = "drain"
				case snapshotMethod:
					stage = "snapshot"
				default:
					continue
				}
				stages = append(stages, stage)
			}
			count := func(stage string) (n int) {
				for _, s := range stages {
					if s == stage {
						n++
					}
				}
				return n
			}
			assert.Equal(t, []int{2 * size, 2 * size, size, 2 * size}, []int{count("freeze"), count("drain"), count("snapshot"), count("thaw")})
			assert.Equal(t, []string{"freeze", "drain", "snapshot", "thaw"}, slices.Compact(stages))
			for _, v := range volumes {
				assert.Equal(t, asExported, b.states(v))
			}
			assert.Equal(t, 1, b.froze)
		})
	}
}

// Whichever call of a group snapshot fails after the freeze has begun, and however it fails, the
// states of all paths are restored. Unless the outcome is unknown, either all snapshots exist or
// none do.
func TestFailedGroupCallLeavesAllSnapshotsOrNone(t *testing.T) {
	volumes := []string{"v0", "v1"}
	b := newGroupBench(t, volumes...)
	b.target.ForgetCalls()
	_, err := b.take(wantAll(volumes, "first"))
	require.NoError(t, err)
	calls := slices.DeleteFunc(b.target.Calls(), func(c spdktest.Call) bool { return c.Err != nil && c.Err.Code == jsonrpc.CodeMethodNotFound })
	first := slices.IndexFunc(calls, func(c spdktest.Call) bool { return c.Method == "nvmf_subsystem_listener_set_ana_state" })
	require.Positive(t, first)
	require.Greater(t, len(calls), first+16)
	for i := first; i < len(calls); i++ {
		for name, fault := range map[string]spdktest.Fault{
			"fails":                              {Do: spdktest.Fail},
			"fails after execution":              {Do: spdktest.Fail, Executed: true},
			"ends the connection":                {Do: spdktest.Close},
			"ends the connection after the call": {Do: spdktest.Close, Executed: true},
			"crashes the target before the call": {Do: spdktest.Crash},
			"crashes the target after the call":  {Do: spdktest.Crash, Executed: true},
		} {
			t.Run(fmt.Sprint(i, " ", name), func(t *testing.T) {
				fault.Skip = i
				if fault.Do == spdktest.Crash {
					b := newGroupBench(t, volumes...)
					b.target.Inject(fault)
					_, _ = b.take(wantAll(volumes, "s"))
					require.NoError(t, b.target.Restart())
					b.settled(t)
					return
				}
				wanted := wantAll(volumes, fmt.Sprint("s", i, len(name)))
				b.target.Inject(fault)
				_, err := b.take(wanted)
				b.target.ClearFaults()
				b.settled(t)
				for _, v := range volumes {
					assert.Equal(t, asExported, b.states(v))
				}
				switch exist := b.existing(wanted); {
				case err == nil:
					assert.Equal(t, len(volumes), exist)
				case errors.Is(err, spdkrpc.OutcomeUnknown):
				case fault.Do == spdktest.Fail && fault.Executed:
					assert.LessOrEqual(t, exist, 1, "a snapshot that SPDK refused exists: %v", err)
				default:
					assert.Zero(t, exist, "%v", err)
				}
			})
		}
	}
}

// If a group snapshot fails, its snapshots are deleted concurrently before the volumes are thawed,
// because SPDK does not wait for I/O when it deletes a snapshot of a volume. If one snapshot cannot
// be deleted, the others are still deleted.
func TestFailedGroupSnapshotsAreDeleted(t *testing.T) {
	volumes := []string{"v0", "v1", "v2"}
	b := newGroupBench(t, volumes...)
	for name, undo := range map[string]*spdktest.Fault{"undone": nil, "not undone": {Method: "bdev_lvol_delete", Do: spdktest.Fail}} {
		t.Run(name, func(t *testing.T) {
			wanted := wantAll(volumes, "s-"+name[:3])
			b.target.Inject(spdktest.Fault{Method: snapshotMethod, Skip: 2, Do: spdktest.Fail, Error: jsonrpc.Errorf(-32602, "No space left on device")})
			if undo != nil {
				b.target.Inject(*undo)
			}
			b.target.ForgetCalls()
			_, err := b.take(wanted)
			b.target.ClearFaults()
			if undo == nil {
				require.ErrorIs(t, err, spdkrpc.InvalidParams)
				assert.Zero(t, b.existing(wanted))
			} else {
				require.ErrorIs(t, err, spdkrpc.OutcomeUnknown, "the error says to look for leftover snapshots")
				assert.Equal(t, 1, b.existing(wanted))
			}
			assert.Equal(t, 2, b.called("bdev_lvol_delete"))
			thawed := false
			for _, c := range b.target.Calls() {
				thawed = thawed || c.Method == "nvmf_subsystem_listener_set_ana_state" && c.Params["ana_state"] != inaccessible
				assert.False(t, thawed && c.Method == "bdev_lvol_delete", "snapshots were deleted after the thaw")
			}
			b.settled(t)
			for _, v := range volumes {
				assert.Equal(t, asExported, b.states(v))
			}
		})
	}
}

// If SPDK executes a call that freezes a volume only after recovery has thawed the volume, the
// volume is thawed again.
func TestFreezeExecutedAfterTheThawIsUndone(t *testing.T) {
	volumes := []string{"v0", "v1"}
	b := newGroupBench(t, volumes...)
	const freeze = "nvmf_subsystem_listener_set_ana_state"
	b.target.Inject(spdktest.Fault{Method: freeze, Delay: recheckDelay / 2})
	b.target.Inject(spdktest.Fault{Method: freeze, Skip: 1, Do: spdktest.Close})
	_, err := b.take(wantAll(volumes, "s"))
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	b.settled(t)
	for _, v := range volumes {
		assert.Equal(t, asExported, b.states(v))
	}
}
