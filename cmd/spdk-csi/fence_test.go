package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, logs bytes.Buffer
	cmd := command(&logs)
	cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the test binary's arguments
	cmd.SetOut(&out)
	cmd.SetErr(&logs)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestFenceCommandRevokesAccess(t *testing.T) {
	rpc := newTarget(t)
	h := controller.HostOf("worker-3")
	nqn := export.NQN(uuid.NewString())
	require.NoError(t, rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: nqn}))
	hosts := func() []spdkrpc.NVMfSubsystemHost {
		subs, err := rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
		require.NoError(t, err)
		return subs[0].Hosts
	}
	for _, host := range []string{h.NQN, h.Multipath, controller.HostOf("worker-4").NQN} {
		require.NoError(t, rpc.NVMfSubsystemAddHost(t.Context(), spdkrpc.NVMfSubsystemAddHostParams{NQN: nqn, Host: host}))
	}
	const mark = "t0: mark the node as fenced, so that no volume is published to it\n"
	removed := "t0: " + nqn + ": remove host " + h.NQN + "\n"
	const not = "Nothing was changed: repeat the command with --yes.\n"
	for range 2 {
		out, err := runCommand(t, "fence", "--node", "worker-3")
		require.NoError(t, err)
		assert.Equal(t, mark+removed+not, out)
		assert.Len(t, hosts(), 3)
	}
	out, err := runCommand(t, "unfence", "--node=worker-3", "--yes")
	require.NoError(t, err)
	assert.Equal(t, "t0: node worker-3 is not fenced\n", out)

	out, err = runCommand(t, "fence", "--node", "worker-3", "--yes")
	require.NoError(t, err)
	assert.Equal(t, mark+removed, out)
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: controller.HostOf("worker-4").NQN}}, hosts())
	out, err = runCommand(t, "fence", "--node", "worker-3", "--yes")
	require.NoError(t, err)
	assert.Equal(t, "t0: node worker-3 is fenced, and no export admits it\n", out)
	out, code, _ := diagnose(t, "", "--wait=0")
	assert.Contains(t, out, "t0: fenced: node worker-3\n")
	assert.Contains(t, out, "would do: nothing\n  by hand:  restart the node, so that it has no pending writes; then spdk-csi unfence --node worker-3 --yes\n", "doctor does not remove the mark")
	assert.Equal(t, exitFindings, code, "the volume of the export does not exist")

	out, err = runCommand(t, "unfence", "--node=worker-3")
	require.NoError(t, err)
	assert.Equal(t, "t0: node worker-3 is fenced\n"+not, out)
	out, err = runCommand(t, "unfence", "--node=worker-3", "--yes")
	require.NoError(t, err)
	assert.Equal(t, "t0: node worker-3 is no longer fenced\n", out)
}

// Fencing a node that no export admits fails, because the name may be mistyped; in that case, the
// intended node could still write.
func TestFenceRefusesAnUnknownNode(t *testing.T) {
	newTarget(t)
	out, err := runCommand(t, "fence", "--node", "wroker-3")
	require.NoError(t, err)
	assert.Contains(t, out, "No export admits node wroker-3: check its name.\n")
	_, err = runCommand(t, "fence", "--node", "wroker-3", "--yes")
	require.ErrorIs(t, err, errNotAdmitted)
	require.ErrorContains(t, err, "spdk-csi unfence --node wroker-3 --yes")
	out, err = runCommand(t, "fence", "--node", "wroker-3", "--yes")
	require.NoError(t, err, "it was fenced before")
	assert.Equal(t, "t0: node wroker-3 is fenced, and no export admits it\n", out)
}

// If a node cannot be fenced on every target, the command fails, even if some targets have fenced
// the node.
func TestFenceReportsFailures(t *testing.T) {
	rpc := newTarget(t)
	open := export.NQN(uuid.NewString())
	require.NoError(t, rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: open, AllowAnyHost: new(true)}))
	_, err := rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: open, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: "disk"}})
	if err != nil { // the lvstore has claimed the disk's bdev
		_, err = rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("other"), NumBlocks: 1024, BlockSize: 4096})
		require.NoError(t, err)
		_, err = rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: open, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: "other"}})
		require.NoError(t, err)
	}
	out, err := runCommand(t, "fence", "--node", "worker-3", "--yes")
	require.ErrorContains(t, err, "t0: node worker-3 can still use 1 export of")
	assert.Contains(t, out, open+": it admits every host")

	text, err := os.ReadFile(os.Getenv("SPDKCSI_CONFIG"))
	require.NoError(t, err)
	down := strings.Replace(string(text), `"nodes": [`, `"nodes": [{"name": "t1", "rpcURL": "http://127.0.0.1:1/", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1"}, `, 1)
	require.NoError(t, os.WriteFile(os.Getenv("SPDKCSI_CONFIG"), []byte(down), 0o600))
	require.NoError(t, os.WriteFile(os.Getenv("SPDKCSI_SECRET"), []byte(`{"rpcTokens": [{"name": "t0", "username": "u", "password": "p"}, {"name": "t1", "username": "u", "password": "p"}]}`), 0o600))
	require.NoError(t, rpc.NVMfDeleteSubsystem(t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: open}))
	out, err = runCommand(t, "fence", "--node", "worker-4", "--yes")
	require.ErrorContains(t, err, "t1: node worker-4 is not fenced: it may still write")
	assert.Contains(t, out, "t0: mark the node", "the others are fenced")
	_, err = runCommand(t, "fence", "--node", "worker-4", "--yes", "--target=t0")
	require.NoError(t, err)
	for _, args := range [][]string{{"fence"}, {"fence", "--node", ""}, {"fence", "--node=x", "--target=t9"}, {"unfence", "--node=x", "y"}} {
		_, err = runCommand(t, args...)
		require.Error(t, err, args)
	}
}
