//go:build kernel

package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// TestReplicatedVolumeLosesNoWrites creates a volume with two replicas on two real SPDK targets,
// through CSI calls and spdk-proxy. During writes, the targets are killed, paused and restarted,
// the plugin is killed, the API server becomes unavailable, and the node loses power: with both
// replicas, with one, and during a rebuild. No acknowledged write may be lost, and the replicas
// must be equal at the end.
func TestReplicatedVolumeLosesNoWrites(t *testing.T) {
	h := newReplicatedHost(t)
	m := NewMachine(t)
	m.Disks = []string{newDisk(t)}
	m.Progress, m.Target = h.progress, h.on(m)
	t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
	run := func(phase string) {
		m.Run(control.Replicated, control.SPDK, append(caseParams(m), control.ParamPhase+"="+phase)...)
	}
	lost := func() { require.True(t, m.Lost(), "the machine ended by itself") }
	run(control.PhaseWrite)
	lost()
	run(control.PhaseCheck)
	lost()
	m.Target = func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		if c.Do == control.Restart {
			h.onRebuild(func() { time.AfterFunc(time.Second, m.PowerOff) })
		}
		return h.on(m)(ctx, c)
	}
	run(control.PhaseDegraded)
	lost()
	m.Target = h.on(m)
	run(control.PhaseUnstage)
}

// TestReplicatedVolumeMoves disconnects a node from both storage servers during writes, and moves
// its volume to another node. Meanwhile, the second server may be silent, so that it still exports
// its replica to the first node. No write of the first node may succeed after the move, and its
// waiting I/O must end.
func TestReplicatedVolumeMoves(t *testing.T) {
	for _, phase := range []string{control.PhaseHere, control.PhaseHereWithOne} {
		t.Run(phase, func(t *testing.T) {
			h := newReplicatedHost(t)
			first, second := NewMachine(t), NewMachine(t)
			first.Disks, second.Disks = []string{newDisk(t)}, []string{newDisk(t)}
			first.Progress, second.Progress = h.progress, h.progress
			written, failed, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
			first.Target = func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
				switch c.Do {
				case control.Move:
					if phase == control.PhaseHereWithOne {
						if err := h.change(ctx, control.TargetCall{Do: control.Pause, Volume: c.Volume, Replica: 1}); err != nil {
							return nil, err
						}
					}
					if _, err := h.on(first)(ctx, control.TargetCall{Do: control.Withdraw, Volume: c.Volume, Node: c.Node}); err != nil {
						return nil, err
					}
					go func() {
						defer close(ended)
						second.Run(control.Replicated, control.SPDK, control.ParamNode+"="+control.SecondNode, control.ParamPhase+"="+phase)
					}()
					select {
					case <-written:
						return nil, nil
					case <-ended:
						return nil, errors.New("the second node failed")
					}
				case control.Failed:
					close(failed)
					return nil, nil
				}
				return h.on(first)(ctx, c)
			}
			second.Target = func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
				if c.Do != control.Await {
					return h.on(second)(ctx, c)
				}
				close(written)
				select {
				case <-failed:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s\n%s", first.Table(), second.Table()) })
			first.Run(control.Replicated, control.SPDK, control.ParamPhase+"="+control.PhaseAway)
			<-ended
		})
	}
}

// TestKeptReplicaContinues loses both storage servers, one after the other, and the node. Only the
// first server returns, whose replica lacks acknowledged writes. An administrator keeps this
// replica. The volume then contains all writes from before the loss of this server. When the other
// server returns, its replica is rebuilt, and the replicas are equal.
func TestKeptReplicaContinues(t *testing.T) {
	h := newReplicatedHost(t)
	m := NewMachine(t)
	m.Disks, m.Progress = []string{newDisk(t)}, h.progress
	t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
	var volume string
	var before map[string]string
	m.Target = func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		if c.Do == control.Kill {
			h.mu.Lock()
			volume, before = c.Volume, maps.Clone(h.acked)
			h.mu.Unlock()
		}
		return h.on(m)(ctx, c)
	}
	m.Run(control.Replicated, control.SPDK, control.ParamPhase+"="+control.PhaseOne)
	require.True(t, m.Lost(), "the machine ended by itself")

	ctx := t.Context()
	require.NoError(t, h.change(ctx, control.TargetCall{Do: control.Kill, Volume: volume, Replica: 0}))
	require.NoError(t, h.change(ctx, control.TargetCall{Do: control.Restart, Volume: volume, Replica: 1}))
	r, err := h.record(ctx, volume)
	require.NoError(t, err)
	node := r.Witness.Writer.Node
	_, err = h.ControllerUnpublishVolume(ctx, unpublishRequest(h.volumes[volume].GetVolumeId(), node))
	require.ErrorIs(t, err, request.ErrNoReplica)
	id, err := request.ParseVolumeID(h.volumes[volume].GetVolumeId())
	require.NoError(t, err)
	state, err := h.KeepReplica(ctx, controller.KeepDecision{Volume: id, Server: r.Places[1].Server, Discard: r.Places[0].Server, StoppedNode: node})
	require.NoError(t, err)
	require.True(t, state.Done)
	h.acked = before // the administrator accepts the loss of all later writes
	m.Target = h.on(m)
	m.Run(control.Replicated, control.SPDK, control.ParamPhase+"="+control.PhaseKept)
}

// newDisk returns the file of a machine's disk.
func newDisk(t *testing.T) string {
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 1<<30))
	return disk
}
