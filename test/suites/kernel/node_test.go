//go:build kernel

package kernel

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

var (
	all    = flag.Bool("all", false, "also run the cases that take long")
	chosen = flag.String("case", "", "run the cases of TestNodePlugin, TestMovedCopyCanBeUsed and TestReplicatedVolumeLosesNoWrites whose names, with _ for spaces, match this regular expression")
)

// TestNodePlugin runs spdk-csi --node in the machine and makes kubelet's calls over its socket. At
// the end, it prints a table of the cases.
func TestNodePlugin(t *testing.T) {
	t.Parallel()
	onTargets(t, control.Node)
}

// TestCallsSucceedAfterThePluginIsKilled kills spdk-csi --node at a third of the steps in its
// calls, or at every step with --all, and checks that the retried calls succeed.
func TestCallsSucceedAfterThePluginIsKilled(t *testing.T) {
	t.Parallel()
	onTargets(t, control.Killed)
}

// onTargets runs a scenario on the targets in the guest's kernel, and on a real SPDK target if
// SPDK_SOCK names one. Killing the plugin at every step takes a long time.
func onTargets(t *testing.T, scenario string) {
	for _, own := range []struct{ name, target string }{{"own target", control.Own}, {"own target, iSCSI", control.OwnISCSI}, {"own target, RDMA", control.OwnRDMA}} {
		if own.target == control.OwnRDMA && scenario == control.Killed {
			continue // for the connector, RDMA has the same steps as TCP
		}
		t.Run(own.name, func(t *testing.T) {
			if scenario == control.Killed && own.target != control.Own && !*all {
				t.Skip("takes long: only with --all")
			}
			t.Parallel()
			runNode(t, NewMachine(t), scenario, own.target)
		})
	}
	for _, spdk := range []struct{ name, targetType, target string }{{"SPDK", "nvme-tcp", control.SPDK}, {"SPDK, iSCSI", "iscsi", control.SPDKISCSI}} {
		t.Run(spdk.name, func(t *testing.T) {
			if scenario == control.Killed && !*all {
				t.Skip("takes long: only with --all")
			}
			realTarget.Lock()
			t.Cleanup(realTarget.Unlock)
			socket := realtarget.Socket(t)
			m := NewMachine(t)
			c := newCSITarget(t, socket, spdk.targetType, "")
			m.Target = c.do
			var params []string
			if c.old {
				params = append(params, control.ParamSameSize+"=1")
			}
			runNode(t, m, scenario, spdk.target, params...)
		})
	}
}

// realTarget is locked by the test that is using the real target.
var realTarget sync.Mutex

func runNode(t *testing.T, m *Machine, scenario, target string, kernelParams ...string) {
	t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
	m.Run(scenario, target, append(kernelParams, caseParams(m)...)...)
}

// caseParams returns the parameters that choose the cases to run.
func caseParams(m *Machine) (params []string) {
	if *all {
		params = append(params, control.ParamAll+"=1")
		m.Deadline = 6 * time.Hour
	}
	if *chosen != "" {
		params = append(params, control.ParamCase+"="+*chosen)
	}
	return params
}

// TestPowerLoss ends the machine twice during writes to volumes. After each boot, it checks that
// all synced data is present.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	m := NewMachine(t)
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 1<<30))
	m.Disks = []string{disk}
	t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })

	const enough = 40
	acked, until := map[string]uint64{}, uint64(enough)
	var mu sync.Mutex
	m.Progress = func(all []control.Progress) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range all {
			acked[p.Volume] = p.Acked
		}
		for _, v := range control.PowerLossVolumes {
			if acked[v] < until {
				return false
			}
		}
		m.PowerOff()
		return false
	}
	params := func(phase string) []string {
		all := []string{control.ParamPhase + "=" + phase}
		for _, v := range control.PowerLossVolumes {
			all = append(all, fmt.Sprintf("%s.%s=%d", control.ParamAcked, v, acked[v]))
		}
		return all
	}
	m.Run(control.PowerLoss, control.Own, params(control.PhaseWrite)...)
	require.True(t, m.Lost(), "the machine ended by itself")
	mu.Lock()
	until = max(acked["ext4"], acked["xfs"]) + enough
	mu.Unlock()
	m.Run(control.PowerLoss, control.Own, params(control.PhaseCheck)...)
	require.True(t, m.Lost(), "the machine ended by itself")
	m.Run(control.PowerLoss, control.Own, params(control.PhaseUnstage)...)
}

// TestMovedVolumeRejectsWritesOfTheOldNode disconnects a node during writes, and moves its volume
// to another node. The first node's writes must no longer reach the volume, even after that node is
// connected again.
func TestMovedVolumeRejectsWritesOfTheOldNode(t *testing.T) {
	target := newCSITarget(t, realtarget.Socket(t), "nvme-tcp", "")
	first, second := NewMachine(t), NewMachine(t)
	written, failed, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first.Target = func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		switch c.Do {
		case control.Move:
			if err := target.detach(ctx, c.Volume); err != nil {
				return nil, err
			}
			go func() {
				defer close(ended)
				second.Run(control.MovedTo, control.SPDK, control.ParamNode+"="+c.Node, fmt.Sprintf("%s.%s=%d", control.ParamAcked, c.Volume, c.Acked))
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
		return target.do(ctx, c)
	}
	second.Target = func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		if c.Do != control.Await {
			return target.do(ctx, c)
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
	first.Run(control.MovedFrom, control.SPDK)
	<-ended
}

// TestVolumesSurviveATargetRestart kills a real target while volumes are being written to, and
// starts it again with the configuration that the proxy has saved.
func TestVolumesSurviveATargetRestart(t *testing.T) {
	process := startTarget(t)
	m := NewMachine(t)
	m.Target = process.do(newCSITarget(t, process.socket(), "nvme-tcp", process.saved()))
	t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
	m.Run(control.Restarted, control.SPDK)
}
