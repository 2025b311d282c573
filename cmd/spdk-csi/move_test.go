package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// newLoopTargets starts simulated targets whose volumes are files, each with an lvstore, and
// configures the driver for these targets.
func newLoopTargets(t *testing.T, names ...string) (rpc map[string]*spdkrpc.Client, files map[string]string) {
	t.Helper()
	rpc, files = map[string]*spdkrpc.Client{}, map[string]string{}
	var nodes, tokens []string
	for _, name := range names {
		files[name] = t.TempDir()
		var url string
		rpc[name], url = startTarget(t, spdktest.Options{DataDir: files[name]})
		nodes = append(nodes, fmt.Sprintf(`{"name": %q, "rpcURL": %q, "targetType": "loop", "targetAddr": "127.0.0.1", "loopDir": %q, "lvstores": ["lvs0"]}`, name, url, files[name]))
		tokens = append(tokens, fmt.Sprintf(`{"name": %q, "username": "u", "password": "p"}`, name))
	}
	configure(t, `{"nodes": [`+strings.Join(nodes, ", ")+`]}`, `{"rpcTokens": [`+strings.Join(tokens, ", ")+`]}`)
	return rpc, files
}

// fileOf returns the file with a volume's contents.
func fileOf(t *testing.T, dir, uuid string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "lvstores", "*", uuid+".img"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

func TestMoveCommandMovesAVolume(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it attaches loop devices")
	}
	rpc, files := newLoopTargets(t, "storage-1", "storage-2")
	uuid, err := rpc["storage-1"].BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 8})
	require.NoError(t, err)
	old := "storage-1:" + uuid
	contents := make([]byte, 8<<20)
	_, _ = rand.Read(contents[:3<<20])
	originalFile := fileOf(t, files["storage-1"], uuid)
	require.NoError(t, os.WriteFile(originalFile, contents, 0o600))
	pv := filepath.Join(t.TempDir(), "old.json")
	require.NoError(t, os.WriteFile(pv, []byte(`{"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": {"name": "pvc-1", "uid": "1", "finalizers": ["kubernetes.io/pv-protection"], "annotations": {"pv.kubernetes.io/provisioned-by": "csi.spdk.io", "other": "x"}},
		"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "8Mi"}, "storageClassName": "spdk", "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
			"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "namespace": "shop", "uid": "2", "resourceVersion": "3"},
			"csi": {"driver": "csi.spdk.io", "fsType": "ext4", "volumeHandle": "`+old+`", "nodeStageSecretRef": {"name": "s", "namespace": "n"},
				"volumeAttributes": {"targetType": "loop", "targetAddr": "192.0.2.1", "lvstore": "elsewhere", "mayFormat": "true", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-csi.spdk.io"}}},
		"status": {"phase": "Bound"}}`), 0o600))

	out, err := runCommand(t, "move", "--pv", pv, "--parameter", "target=storage-2", "--node-allow-loop", "--prepare")
	require.NoError(t, err)
	assert.Equal(t, "prepared: stop the pods, and repeat the command without --prepare\n", out)
	lvols, err := rpc["storage-1"].BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	assert.Len(t, lvols, 1, "the simulated target cannot list changes, so the snapshot is not kept")

	out, err = runCommand(t, "move", "--pv", pv, "--parameter", "target=storage-2", "--node-allow-loop")
	require.NoError(t, err)
	var moved struct {
		Metadata map[string]any
		Spec     struct {
			Capacity, ClaimRef map[string]string
			CSI                struct {
				VolumeHandle       string
				FSType             string
				NodeStageSecretRef map[string]string
				VolumeAttributes   map[string]string
			}
		}
		Status any
	}
	require.NoError(t, json.Unmarshal([]byte(out), &moved))
	copied, ok := strings.CutPrefix(moved.Spec.CSI.VolumeHandle, "storage-2:")
	require.True(t, ok, out)
	assert.Equal(t, map[string]any{"name": "pvc-" + copied, "annotations": map[string]any{"pv.kubernetes.io/provisioned-by": "csi.spdk.io"}}, moved.Metadata)
	assert.Equal(t, map[string]string{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "namespace": "shop"}, moved.Spec.ClaimRef, "a new claim with this name may bind to it")
	assert.Equal(t, map[string]string{"storage": "8388608"}, moved.Spec.Capacity)
	assert.Equal(t, "ext4", moved.Spec.CSI.FSType)
	assert.Equal(t, map[string]string{"name": "s", "namespace": "n"}, moved.Spec.CSI.NodeStageSecretRef)
	assert.Equal(t, map[string]string{
		"targetType": "loop", "targetAddr": "127.0.0.1", "targetPort": "4420", "loopDir": files["storage-2"], "nqn": export.NQN(copied), "nsUUID": copied, "model": copied,
		"lvolSize": "8388608", "lvstore": "lvs0", "mayFormat": "false", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-csi.spdk.io",
	}, moved.Spec.CSI.VolumeAttributes)
	assert.Nil(t, moved.Status)
	got, err := os.ReadFile(fileOf(t, files["storage-2"], copied))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(contents, got), "the copy has other contents")

	hosts := func(target, uuid string) (names []string) {
		nqn := export.NQN(uuid)
		subs, err := rpc[target].NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
		if err != nil {
			return nil
		}
		for _, h := range subs[0].Hosts {
			names = append(names, h.NQN)
		}
		return names
	}
	mover := controller.HostOf(hostname.MoveNode(uuid, copied))
	assert.ElementsMatch(t, []string{mover.NQN, mover.Multipath}, hosts("storage-1", uuid), "no node can attach the original")
	assert.Empty(t, hosts("storage-2", copied))
	list := old + "\n" + moved.Spec.CSI.VolumeHandle
	findings, _, _ := diagnose(t, list, "--volumes=-")
	assert.NotContains(t, findings, "wrong-host", "doctor knows the node of a move")

	again, err := runCommand(t, "move", "--pv", pv, "--parameter", "target=storage-2", "--node-allow-loop")
	require.NoError(t, err, "nothing was changed")
	assert.Equal(t, out, again)
	_, err = runCommand(t, "move", "--volume", old, "--delete-original", "--copy", old, "--node-allow-loop")
	require.ErrorContains(t, err, "makes a different copy, with the UUID "+copied)
	out, err = runCommand(t, "move", "--volume", old, "--keep-original")
	require.NoError(t, err)
	assert.Equal(t, "nodes can attach "+old+" again\n", out)
	assert.Empty(t, hosts("storage-1", uuid))
	_, err = runCommand(t, "move", "--volume", old, "--delete-original", "--copy", moved.Spec.CSI.VolumeHandle, "--node-allow-loop")
	require.ErrorContains(t, err, "could have attached the original")

	// After the copy is deleted, the volume can be moved again.
	_, code, err := diagnose(t, old, "--volumes=-", "--fix", "--delete-volume="+moved.Spec.CSI.VolumeHandle)
	require.NoError(t, err)
	require.Zero(t, code)
	out, err = runCommand(t, "move", "--volume", old, "--parameter", "target=storage-2,thin=false", "--node-allow-loop")
	require.NoError(t, err)
	copied, _ = strings.CutPrefix(strings.TrimSpace(out), "storage-2:")
	got, err = os.ReadFile(fileOf(t, files["storage-2"], copied))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(contents, got), "the copy has other contents")
	out, err = runCommand(t, "move", "--volume", old, "--delete-original", "--copy", "storage-2:"+copied, "--node-allow-loop")
	require.NoError(t, err)
	assert.Equal(t, old+" is deleted\n", out)
	assert.NoFileExists(t, originalFile)
	findings, code, _ = diagnose(t, "storage-2:"+copied, "--volumes=-")
	assert.Equal(t, "Nothing was found.\n", findings)
	assert.Zero(t, code)
}

func TestMoveRejectsInvalidArguments(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"no.json":    `{`,
		"list.json":  `{"kind": "List"}`,
		"other.json": `{"kind": "PersistentVolume", "metadata": {"name": "pv1"}, "spec": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "x"}}}`,
		"nfs.json":   `{"kind": "PersistentVolume", "metadata": {"name": "pv1"}, "spec": {"nfs": {}}}`,
		"id.json":    `{"kind": "PersistentVolume", "metadata": {"name": "pv1"}, "spec": {"csi": {"driver": "csi.spdk.io", "volumeHandle": "x"}}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	const id = "storage-1:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "at least one of the flags in the group [pv volume] is required"},
		{[]string{"--pv=x", "--volume=" + id}, "none of the others can be"},
		{[]string{"--volume=8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}, "--volume: the id must name the target, as in TARGET:UUID"},
		{[]string{"--volume=x"}, `--volume: not found: "x" is not of the form TARGET:UUID`},
		{[]string{"--volume=" + id, "--topology=x"}, "--topology: "},
		{[]string{"--volume=" + id, "--authentication=x"}, `--authentication: "authentication" is "x": it must be dhchap or chap`},
		{[]string{"--volume=" + id, "--secret-dir", dir}, "has none of the files dhchap-key, dhchap-ctrl-key, chap-user"},
		{[]string{"--volume=" + id, "--delete-original"}, "[delete-original copy]"},
		{[]string{"--volume=" + id, "--keep-original", "--prepare"}, "none of the others can be"},
		{[]string{"--volume=" + id, "--delete-original", "--keep-original", "--copy=" + id}, "none of the others can be"},
		{[]string{"--pv", filepath.Join(dir, "none.json")}, "no such file"},
		{[]string{"--pv", filepath.Join(dir, "no.json")}, "--pv: invalid PersistentVolume: "},
		{[]string{"--pv", filepath.Join(dir, "list.json")}, "expected one object, as printed by kubectl get pv NAME -o json"},
		{[]string{"--pv", filepath.Join(dir, "other.json")}, "pv1 belongs to driver ebs.csi.aws.com, not csi.spdk.io"},
		{[]string{"--pv", filepath.Join(dir, "nfs.json")}, "pv1 is not a volume of a CSI driver"},
		{[]string{"--pv", filepath.Join(dir, "id.json")}, `"x" is not of the form TARGET:UUID`},
	} {
		_, err := runCommand(t, append([]string{"move"}, c.args...)...)
		require.ErrorContains(t, err, c.want, c.args)
	}
	newTarget(t)
	_, err := runCommand(t, "move", "--volume", "t1:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d")
	require.ErrorContains(t, err, "t1")
	_, err = runCommand(t, "move", "--volume", "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d")
	require.ErrorContains(t, err, "not found")
}
