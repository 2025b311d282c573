package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestInventoryListsVolumesAndExports(t *testing.T) {
	rpc := newTarget(t)
	plain, err := rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 8, ThinProvision: new(true)})
	require.NoError(t, err)
	exported, err := rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-2", LvsName: new("lvs0"), SizeInMiB: 4})
	require.NoError(t, err)
	nqn, host := export.NQN(exported), controller.HostOf("worker-3").NQN
	require.NoError(t, rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: nqn}))
	require.NoError(t, rpc.NVMfSubsystemAddHost(t.Context(), spdkrpc.NVMfSubsystemAddHostParams{NQN: nqn, Host: host}))

	read := func(args ...string) (i inventory.Inventory, err error) {
		out, err := runCommand(t, append([]string{"inventory"}, args...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &i), out)
		return i, err
	}
	i, err := read()
	require.NoError(t, err)
	require.Len(t, i.Targets, 1)
	got := i.Targets[0]
	assert.Equal(t, "t0", got.Name)
	assert.Equal(t, "TCP", got.Transport)
	require.Len(t, got.Stores, 1)
	assert.Equal(t, "lvs0", got.Stores[0].Name)
	assert.EqualValues(t, 12<<20, got.Stores[0].PromisedBytes)
	assert.Greater(t, got.Stores[0].TotalBytes, got.Stores[0].FreeBytes)
	assert.Positive(t, got.Stores[0].LargestBytes)
	volumes := map[string]inventory.Volume{}
	for _, v := range got.Volumes {
		volumes[v.Name] = v
	}
	assert.Equal(t, inventory.Volume{ID: "t0:" + plain, Name: "pvc-1", Store: "lvs0", SizeBytes: 8 << 20, Thin: true, AllocatedBytes: new(int64(0))}, volumes["pvc-1"])
	e := &inventory.Export{Name: nqn, Hosts: []string{host}, Paths: []inventory.Path{{Address: "127.0.0.1:4420"}}}
	assert.Equal(t, inventory.Volume{ID: "t0:" + exported, Name: "pvc-2", Store: "lvs0", SizeBytes: 4 << 20, AllocatedBytes: new(int64(4 << 20)), Export: e}, volumes["pvc-2"])

	// Make the target listen on the address.
	require.NoError(t, rpc.NVMfCreateTransport(t.Context(), spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"}))
	require.NoError(t, rpc.NVMfSubsystemAddListener(t.Context(), spdkrpc.NVMfSubsystemAddListenerParams{
		NQN: nqn, ListenAddress: spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: "127.0.0.1", Trsvcid: new("4420")},
	}))
	i, err = read()
	require.NoError(t, err)
	for _, v := range i.Targets[0].Volumes {
		if v.Export != nil {
			assert.Equal(t, []inventory.Path{{Address: "127.0.0.1:4420", Listening: true}}, v.Export.Paths)
		}
	}

	// The inventory must contain an error for a target that is down.
	text, err := os.ReadFile(os.Getenv("SPDKCSI_CONFIG"))
	require.NoError(t, err)
	down := strings.Replace(string(text), `"nodes": [`, `"nodes": [{"name": "t1", "rpcURL": "http://127.0.0.1:1/", "targetType": "iscsi", "targetAddr": "127.0.0.1"}, `, 1)
	require.NoError(t, os.WriteFile(os.Getenv("SPDKCSI_CONFIG"), []byte(down), 0o600))
	require.NoError(t, os.WriteFile(os.Getenv("SPDKCSI_SECRET"), []byte(`{"rpcTokens": [{"name": "t0", "username": "u", "password": "p"}, {"name": "t1", "username": "u", "password": "p"}]}`), 0o600))
	i, err = read()
	require.ErrorContains(t, err, "t1")
	require.Len(t, i.Targets, 2)
	assert.Equal(t, "iSCSI", i.Targets[0].Transport)
	assert.NotEmpty(t, i.Targets[0].Error)
	assert.Len(t, i.Targets[1].Volumes, 2)
	_, err = read("--target=t0")
	require.NoError(t, err)
	_, err = runCommand(t, "inventory", "--target=t9")
	require.ErrorContains(t, err, `"t9"`)
}

// The inventory lists the PersistentVolumes that prevent the deletion of a snapshot, just as the
// error of DeleteSnapshot does.
func TestInventoryListsSnapshots(t *testing.T) {
	rpc := newTarget(t)
	id, err := rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 8, ThinProvision: new(true)})
	require.NoError(t, err)
	kept, err := rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: id, SnapshotName: "snap-1"})
	require.NoError(t, err)
	_, err = rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: kept, CloneName: "pvc-restored"})
	require.NoError(t, err)
	free, err := rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: id, SnapshotName: "snap-2"})
	require.NoError(t, err)

	const gone = "t0:11111111-1111-4111-8111-111111111111"
	out, err := runCommand(t, "inventory", "--snapshot=t0:"+kept, "--snapshot=t0:"+free+","+gone)
	require.NoError(t, err)
	var i inventory.Inventory
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	require.Len(t, i.Targets, 1)
	assert.Empty(t, i.Targets[0].Volumes)
	require.Len(t, i.Targets[0].Snapshots, 3)
	assert.Contains(t, i.Targets[0].Snapshots[0].Undeletable, "PersistentVolume pvc-restored, snapshot t0:"+free+". To delete the snapshot, delete the claims")
	assert.Equal(t, []inventory.Snapshot{{ID: "t0:" + free}, {ID: gone}}, i.Targets[0].Snapshots[1:])

	_, err = runCommand(t, "inventory", "--snapshot=t9:"+free)
	require.ErrorContains(t, err, `"t9"`)
	_, err = runCommand(t, "inventory", "--snapshot=x")
	require.Error(t, err)
	_, err = runCommand(t, "inventory", "--snapshot=t0:"+free, "--target=t0")
	require.Error(t, err)
}

// Over iSCSI, a path is one of the export's portal groups.
func TestInventoryListsISCSIPaths(t *testing.T) {
	rpc := newTarget(t)
	text, err := os.ReadFile(os.Getenv("SPDKCSI_CONFIG"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(os.Getenv("SPDKCSI_CONFIG"), []byte(strings.Replace(string(text), "nvme-tcp", "iscsi", 1)), 0o600))
	id, err := rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 4})
	require.NoError(t, err)
	config := export.Config{Name: "t0", Transport: export.ISCSI, Listen: []export.Portal{{Addr: "127.0.0.1", Port: "3260"}}}
	h := controller.HostOf("worker-3")
	_, err = export.NewTarget(config).Service(rpc).Admit(t.Context(), id, h, func(context.Context) error { return nil })
	require.NoError(t, err)
	out, err := runCommand(t, "inventory")
	require.NoError(t, err)
	var i inventory.Inventory
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	assert.Equal(t, &inventory.Export{Name: export.IQN(id), Hosts: []string{h.IQN}, Paths: []inventory.Path{{Address: "127.0.0.1:3260", Listening: true}}}, i.Targets[0].Volumes[0].Export)
	other := strings.Replace(strings.Replace(string(text), "nvme-tcp", "iscsi", 1), `"targetAddr": "127.0.0.1"`, `"targetAddr": "127.0.0.2"`, 1)
	require.NoError(t, os.WriteFile(os.Getenv("SPDKCSI_CONFIG"), []byte(other), 0o600))
	out, err = runCommand(t, "inventory")
	require.NoError(t, err)
	assert.Contains(t, out, `"listening": false`)
}

// The inventory lists fenced nodes, with the time of fencing if the fence mark records it.
func TestInventoryListsFencedNodes(t *testing.T) {
	rpc := newTarget(t)
	before := time.Now().Truncate(time.Second)
	service := export.NewTarget(export.Config{Name: "t0", Transport: export.TCP, Listen: []export.Portal{{Addr: "127.0.0.1", Port: "4420"}}}).Service(rpc)
	_, err := service.Fence(t.Context(), controller.HostOf("worker-3"), "worker-3", false)
	require.NoError(t, err)
	out, err := runCommand(t, "inventory", "--fenced")
	require.NoError(t, err)
	var i inventory.Inventory
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	require.Len(t, i.Targets, 1)
	require.Len(t, i.Targets[0].Fenced, 1)
	fenced := i.Targets[0].Fenced[0]
	assert.Equal(t, []string{hostname.Of("worker-3").UUID, "worker-3"}, []string{fenced.Host, fenced.Label})
	require.NotNil(t, fenced.Since)
	assert.False(t, fenced.Since.Before(before) || fenced.Since.After(time.Now()), fenced.Since)
	assert.Empty(t, i.Targets[0].Stores, "nothing else is read")

	// A fence mark set by an earlier release does not record the time.
	_, err = service.Unfence(t.Context(), controller.HostOf("worker-3"), false)
	require.NoError(t, err)
	require.NoError(t, rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: "nqn.2020-04.io.spdk.csi:fenced:" + hostname.Of("worker-4").UUID, ModelNumber: new("worker-4")}))
	out, err = runCommand(t, "inventory", "--fenced")
	require.NoError(t, err)
	i = inventory.Inventory{}
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	assert.Equal(t, []inventory.Fenced{{Host: hostname.Of("worker-4").UUID, Label: "worker-4"}}, i.Targets[0].Fenced)

	_, err = runCommand(t, "inventory", "--fenced", "--target=t0")
	require.Error(t, err)
	configure(t, `{"nodes": [{"name": "t1", "rpcURL": "http://127.0.0.1:1/", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1"}]}`, `{"rpcTokens": [{"name": "t1", "username": "u", "password": "p"}]}`)
	out, err = runCommand(t, "inventory", "--fenced")
	require.ErrorContains(t, err, "t1")
	i = inventory.Inventory{}
	require.NoError(t, json.Unmarshal([]byte(out), &i))
	assert.NotEmpty(t, i.Targets[0].Error)
}
