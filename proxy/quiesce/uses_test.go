package quiesce

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// cannedResults is a Caller that replaces the results of some methods.
type cannedResults struct {
	spdkrpc.Caller
	results map[string]string
}

func (c cannedResults) Call(ctx context.Context, method string, params, result any) error {
	if text, is := c.results[method]; is {
		return json.Unmarshal([]byte(text), result)
	}
	return c.Caller.Call(ctx, method, params, result)
}

// SPDK does not claim bdevs for iSCSI, NBD, ublk or vhost, so the proxy queries each of these.
func TestVolumesInUseOutsideNVMfAreRefused(t *testing.T) {
	const target = `[{"name": "iqn.2016-06.io.spdk:disk", "luns": [{"lun_id": 0, "bdev_name": "lvs0/v0"}]}]`
	for name, c := range map[string]struct {
		results map[string]string
		mode    Mode
		says    string // part of the error; empty if the snapshot is taken
	}{
		"NBD":        {map[string]string{"nbd_get_disks": `[{"nbd_device": "/dev/nbd0", "bdev_name": "lvs0/v0"}]`}, Mode{Idle: true}, "nbd_stop_disk"},
		"ublk":       {map[string]string{"ublk_get_disks": `[{"ublk_device": "/dev/ublkb0", "id": 0, "bdev_name": "lvs0/v0"}]`}, Mode{Idle: true}, "ublk_stop_disk"},
		"vhost-blk":  {map[string]string{"vhost_get_controllers": `[{"ctrlr": "c", "backend_specific": {"block": {"bdev": "lvs0/v0", "readonly": false}}}]`}, Mode{Idle: true}, "virtual machine"},
		"vhost-scsi": {map[string]string{"vhost_get_controllers": `[{"ctrlr": "c", "backend_specific": {"scsi": [{"scsi_dev_num": 0, "id": 0, "luns": [{"id": 0, "bdev_name": "lvs0/v0"}]}]}}]`}, Mode{Freeze: true}, "virtual machine"},
		"iSCSI with a connected initiator": {map[string]string{
			"iscsi_get_target_nodes": target, "iscsi_get_connections": `[{"id": 0, "target_node_name": "disk"}]`}, Mode{Idle: true}, "an initiator is connected"},
		"iSCSI during a login": {map[string]string{
			"iscsi_get_target_nodes": target, "iscsi_get_connections": `[{"id": 0, "target_node_name": ""}]`}, Mode{Idle: true}, "an initiator is connected"},
		"iSCSI with an initiator of another target": {map[string]string{
			"iscsi_get_target_nodes": target, "iscsi_get_connections": `[{"id": 0, "target_node_name": "other"}]`}, Mode{Idle: true}, ""},
		"iSCSI, to be frozen": {map[string]string{"iscsi_get_target_nodes": target}, Mode{Freeze: true}, "delete the iSCSI target"},
		"another bdev": {map[string]string{
			"nbd_get_disks": `[{"nbd_device": "/dev/nbd0", "bdev_name": "lvs0/other"}]`}, Mode{Idle: true}, ""},
		"vhost without a bdev": {map[string]string{
			"vhost_get_controllers": `[{"ctrlr": "c", "backend_specific": {"block": {"readonly": false}}}]`}, Mode{Idle: true}, ""},
	} {
		b := newBench(t, "v26.05")
		b.volume("v0")
		b.q.opts.Connect = func(ctx context.Context, at Place) (*Target, error) {
			found, err := connect(ctx, at)
			if err == nil {
				found.Caller = cannedResults{found.Caller, c.results}
			}
			return found, err
		}
		_, err := b.q.Take(t.Context(), want("v0", "s0"), c.mode)
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		var inUse *InUseError
		require.ErrorAs(t, err, &inUse, name)
		assert.Equal(t, "lvs0/v0", inUse.Volume, name)
		assert.ErrorContains(t, err, c.says, name)
		assert.False(t, b.exists("s0"), name)
	}
}

// The proxy freezes only listeners with known transports and states, because only for these is it
// certain that Linux sends no I/O on an inaccessible path.
func TestUnfreezableListenersAreRefused(t *testing.T) {
	for _, c := range []string{
		`[{"address": {"trtype": "VFIOUSER", "traddr": "/run/vfio"}, "ana_states": [{"ana_group": 1, "ana_state": "optimized"}]}]`,
		`[{"address": {"trtype": "TCP", "traddr": "192.0.2.1", "trsvcid": "4420"}, "ana_states": [{"ana_group": 1, "ana_state": "persistent_loss"}]}]`,
	} {
		b := newBench(t, "v26.05")
		b.volume("v0")
		b.export("v0", true)
		b.q.opts.Connect = func(ctx context.Context, at Place) (*Target, error) {
			found, err := connect(ctx, at)
			if err == nil {
				found.Caller = cannedResults{found.Caller, map[string]string{"nvmf_subsystem_get_listeners": c}}
			}
			return found, err
		}
		_, err := b.take(want("v0", "s0"))
		var inUse *InUseError
		require.ErrorAs(t, err, &inUse, c)
		assert.ErrorContains(t, err, "a listener of its subsystem", c)
	}
}

// If the caller names the subsystem of each volume, the proxy does not list all subsystems.
func TestNamedSubsystemIsFoundWithoutListing(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("unused")
	list := []Snapshot{{Volume: "lvs0/unused", Name: "s-unused"}}
	for _, v := range []string{"v0", "v1", "v2"} {
		b.volume(v)
		b.export(v, true)
		list = append(list, Snapshot{Volume: "lvs0/" + v, Name: "s-" + v, NQN: nqn(v)})
	}
	b.target.ForgetCalls()
	taken, err := b.take(list)
	require.NoError(t, err)
	for i, s := range taken {
		assert.Equal(t, i > 0, s.Frozen, list[i].Volume)
	}
	for _, c := range b.target.Calls() {
		if c.Method == "nvmf_get_subsystems" {
			assert.NotEmpty(t, c.Params["nqn"])
		}
	}
}
