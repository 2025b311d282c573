package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/kubectl"
)

// kubectlOf puts a fake kubectl into PATH. The fake records its arguments in a file and runs the
// script.
func kubectlOf(t *testing.T, script string) (calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\necho \"$*\" >>'"+log+"'\n"+script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		require.NoError(t, os.Remove(log))
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

func run(t *testing.T, args ...string) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command()
	cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the test binary's arguments
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// cluster is the script of a fake kubectl for a cluster with one volume, whose storage servers are
// queried through the controller's pod.
const cluster = `case "$*" in
*"--raw /api/v1/persistentvolumes"*) echo '{"items": [{"metadata": {"name": "pv-1"}, "spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "shop", "name": "data"},
  "csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:11111111-1111-4111-8111-111111111111"}}, "status": {"phase": "Bound"}}]}' ;;
*"--raw /apis/storage.k8s.io/v1/csinodes"*) echo '{"items": [{"metadata": {"name": "worker-3"}, "spec": {"drivers": [{"name": "csi.spdk.io"}]}}]}' ;;
*"spdk-csi inventory"*) echo '{"targets": [{"name": "t0", "stores": [{"name": "lvs0"}], "volumes": [{"id": "t0:11111111-1111-4111-8111-111111111111", "store": "lvs0"}]}, {"name": "t1", "error": "down"}]}'; exit 1 ;;
*--raw*) echo '{"items": []}' ;;
esac
`

func TestVolumesAreShown(t *testing.T) {
	calls := kubectlOf(t, cluster)
	out, _, err := run(t, "volumes", "--context=test", "--as", "reader")
	require.NoError(t, err)
	assert.Contains(t, out, "shop        data    pv-1")
	assert.NotContains(t, out, "ALLOCATED")
	for _, call := range calls() {
		assert.Regexp(t, `^get --raw /\S+ --context=test --as=reader$`, call, "the user's flags go to kubectl, and no pod is needed")
	}
	out, _, err = run(t, "volumes", "--live", "--target=t0", "-o", "wide")
	require.EqualError(t, err, "storage server t1 is not shown: down")
	assert.Regexp(t, `ALLOCATED.*ID\n.*t0:11111111`, out)
	assert.Contains(t, calls(), "exec --namespace=spdkcsi deployment/spdkcsi-controller --container=spdkcsi-controller -- spdk-csi inventory --target=t0")
	out, notes, err := run(t, "volumes", "none", "-o", "json")
	require.NoError(t, err)
	assert.JSONEq(t, `{"items": []}`, out)
	assert.Equal(t, "No volumes were found.\n", notes)
	_, notes, err = run(t, "snapshots", "-n", "shop")
	require.NoError(t, err)
	assert.Equal(t, "No snapshots were found.\n", notes)
	_, notes, err = run(t, "replicas", "-n", "shop")
	require.NoError(t, err)
	assert.Equal(t, "No replicated volumes were found.\n", notes)
	_, notes, err = run(t, "capacity")
	require.NoError(t, err)
	assert.Contains(t, notes, "--live asks the storage servers")
	out, _, err = run(t, "capacity", "--live", "--driver-namespace=storage", "--controller=pod/x", "--container=driver")
	require.Error(t, err)
	assert.Regexp(t, `t0 +lvs0 +0 +0 +0 +0 +1\n`, out)
	assert.Contains(t, calls(), "exec --namespace=storage pod/x --container=driver -- spdk-csi inventory")
	for _, args := range [][]string{{"volumes", "-o", "xml"}, {"snapshots", "x"}, {"capacity", "x"}, {"fence"}, {"fence", "a", "b"}, {"doctor", "x"}, {"doctor", "--other-clusters=/nonexistent"}, {"doctor", "--targets-only", "--other-clusters=x"}} {
		_, _, err = run(t, args...)
		require.Error(t, err, args)
	}
}

func TestNodesAreShown(t *testing.T) {
	calls := kubectlOf(t, `case "$*" in
*"--raw /api/v1/nodes"*) echo '{"items": [{"metadata": {"name": "worker-3"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}' ;;
*"/namespaces/spdkcsi/pods?labelSelector=app%3Dspdkcsi-node"*) echo '{"items": [{"metadata": {"name": "plugin-x"}, "spec": {"nodeName": "worker-3"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}' ;;
*"spdk-csi inventory --fenced"*) echo '{"targets": [{"name": "t0"}]}' ;;
*"pod/plugin-x --container=spdkcsi-node -- spdk-csi node-status"*) echo '{"version": "v1", "transports": ["iscsi"], "staged": {"checked": "2026-01-01T00:00:00Z", "volumes": []}}' ;;
*) exec sh -c "$REST" - "$@" ;;
esac
`)
	t.Setenv("REST", cluster)
	out, notes, err := run(t, "nodes", "--context=test")
	require.NoError(t, err)
	assert.Empty(t, notes)
	assert.Regexp(t, `worker-3 +Ready +0 +no +0 +0 +- +iscsi +v1\n$`, out)
	assert.Contains(t, calls(), "exec --namespace=spdkcsi --context=test pod/plugin-x --container=spdkcsi-node -- spdk-csi node-status")
	out, _, err = run(t, "nodes", "worker-3", "--live=false", "-o", "wide")
	require.NoError(t, err)
	assert.Regexp(t, `worker-3 +Ready +0 +- +plugin-x`, out)
	for _, call := range calls() {
		assert.NotContains(t, call, "exec ", "no pod is needed")
	}
	out, _, err = run(t, "nodes", "worker-9", "-o", "json")
	require.ErrorContains(t, err, "worker-9")
	assert.JSONEq(t, `{"items": []}`, out)

	// If some of the information is unavailable, the command shows the rest and fails.
	kubectlOf(t, `case "$*" in exec*) echo "Error from server (Forbidden): no" >&2; exit 1;; *"/namespaces/spdkcsi/pods"*) echo '{"items": [{"metadata": {"name": "plugin-x"}, "spec": {"nodeName": "worker-3"}}]}'; exit;; esac
`+cluster)
	out, _, err = run(t, "nodes")
	require.ErrorContains(t, err, "inventory in deployment/spdkcsi-controller of namespace spdkcsi: Error from server (Forbidden): no")
	assert.Regexp(t, `worker-3 +NotInCluster +0( +\?){6}\n$`, out)
	kubectlOf(t, "exit 1\n")
	_, _, err = run(t, "nodes")
	require.Error(t, err)
}

// For snapshots that Kubernetes is deleting, wide tables show why the snapshots still exist.
// Without permission to query the reasons, the tables show only the other columns.
func TestRetainedSnapshotsAreShown(t *testing.T) {
	const contents = `case "$*" in
*"--raw /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"*) echo '{"items": [{"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"driver": "csi.spdk.io",
  "volumeSnapshotRef": {"namespace": "shop", "name": "snap"}}, "status": {"snapshotHandle": "t0:11111111-1111-4111-8111-111111111111"}}]}'; exit ;;
*"--raw /apis"*"?"*) ;;
*"--raw /apis"*) echo '{"groups": [{"name": "snapshot.storage.k8s.io"}]}'; exit ;;
esac
`
	calls := kubectlOf(t, contents+`case "$*" in *"spdk-csi inventory"*) echo '{"targets": [{"name": "t0", "snapshots": [{"id": "t0:11111111-1111-4111-8111-111111111111", "undeletable": "PersistentVolume pvc-1"}]}]}'; exit;; esac
`+cluster)
	out, _, err := run(t, "snapshots")
	require.NoError(t, err)
	assert.Contains(t, out, "Terminating")
	for _, call := range calls() {
		assert.NotContains(t, call, "exec", "no pod is needed")
	}
	out, _, err = run(t, "snapshots", "-o", "wide")
	require.NoError(t, err)
	assert.Regexp(t, `Terminating .* PersistentVolume pvc-1
$`, out)
	assert.Contains(t, calls(), "exec --namespace=spdkcsi deployment/spdkcsi-controller --container=spdkcsi-controller -- spdk-csi inventory --snapshot=t0:11111111-1111-4111-8111-111111111111")
	out, _, err = run(t, "snapshots", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"undeletable": "PersistentVolume pvc-1"`)

	kubectlOf(t, contents+`case "$*" in exec*) echo "Error from server (Forbidden): no" >&2; exit 1;; esac
`+cluster)
	out, _, err = run(t, "snapshots", "-o", "wide")
	require.ErrorContains(t, err, "Error from server (Forbidden): no")
	assert.Regexp(t, `snap .*Terminating .* -
$`, out)
}

func TestCommandsRunInControllerPod(t *testing.T) {
	calls := kubectlOf(t, cluster+`case "$*" in *spdk-csi*) echo done; cat >/dev/null; echo note >&2; exit 1;; esac`)
	const exec = "exec --namespace=spdkcsi deployment/spdkcsi-controller --container=spdkcsi-controller -- spdk-csi "
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"fence", "worker-3"}, "fence --node=worker-3"},
		{[]string{"fence", "worker-3", "--yes", "--target=t0,t1", "--timeout=5s"}, "fence --node=worker-3 --yes=true --target=t0 --target=t1 --timeout=5s"},
		{[]string{"unfence", "worker-3", "--yes"}, "unfence --node=worker-3 --yes=true"},
		{[]string{"doctor", "--targets-only", "--json"}, "doctor --json=true"},
	} {
		out, notes, err := run(t, c.args...)
		assert.Equal(t, kubectl.Status(1), err)
		assert.Equal(t, "done\n", out)
		assert.Equal(t, "note\n", notes)
		assert.Equal(t, []string{exec + c.want}, slices.DeleteFunc(calls(), func(call string) bool {
			return strings.HasPrefix(call, "get --raw /apis/apps/v1/namespaces/spdkcsi/deployments/")
		}))
	}
	others := filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, os.WriteFile(others, []byte(`{"kind": "List", "items": []}`), 0o600))
	_, _, err := run(t, "doctor", "--list-after=0s", "--fix", "--delete-volume=t0:a", "--wait=2m", "--other-clusters", others)
	assert.Equal(t, kubectl.Status(1), err)
	assert.Contains(t, calls(), strings.Replace(exec, "exec --namespace=spdkcsi", "exec --namespace=spdkcsi --stdin", 1)+"doctor --volumes=- --fix=true --delete-volume=t0:a --wait=2m --drivername=csi.spdk.io")
}

func TestCompletionOffersNodes(t *testing.T) {
	calls := kubectlOf(t, cluster)
	out, _, err := run(t, "__complete", "fence", "--context=test", "")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "worker-3\n"), out)
	assert.Equal(t, []string{"get --raw /apis/storage.k8s.io/v1/csinodes?limit=2000 --context=test"}, calls())
	out, _, err = run(t, "__complete", "nodes", "worker-1", "")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "worker-3\n"), out)
	out, _, err = run(t, "__complete", "volumes", "-o", "")
	require.NoError(t, err)
	assert.Contains(t, out, "wide\njson\nyaml\n")
	out, _, err = run(t, "__complete", "fence", "worker-3", "")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, ":4\n"), "no second node, and no file names: %s", out)
}

func TestHelpAndDefaultDriverNameAreCorrect(t *testing.T) {
	assert.Equal(t, driver.DefaultName, command().PersistentFlags().Lookup("drivername").DefValue)
	out, _, err := run(t, "--help")
	require.NoError(t, err)
	assert.Contains(t, out, "kubectl spdkgate [command]")
	out, _, err = run(t, "--version")
	require.NoError(t, err)
	assert.Contains(t, out, versionText())
}
