//go:build kernel

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// newDisk returns the file of a machine's disk.
func newDisk(t *testing.T) string {
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 1<<30))
	return disk
}
