package exports

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A volume that is already exposed in another way is not exported.
func TestVolumeExposedElsewhereIsNotExported(t *testing.T) {
	w := newWorld(t, "v26.05")
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}}
	for method, result := range map[string]string{
		"nbd_get_disks":         `[{"nbd_device":"/dev/nbd0","bdev_name":"BDEV"}]`,
		"ublk_get_disks":        `[{"ublk_device":"/dev/ublkb1","id":1,"queue_depth":1,"num_queues":1,"bdev_name":"BDEV"}]`,
		"vhost_get_controllers": `[{"ctrlr":"vm.0","cpumask":"0x1","delay_base_us":0,"iops_threshold":0,"socket":"/s","backend_specific":{"block":{"readonly":false,"bdev":"BDEV","transport":"vhost_user_blk"}}}]`,
		"":                      `[]`,
	} {
		for _, bdev := range []string{w.v0, "lvs0/v0", "lvs0/v1"} {
			rpc := spdkrpc.NewClient(&answering{Caller: w.socket, method: method, result: strings.ReplaceAll(result, "BDEV", bdev)})
			_, err := PlanExport(t.Context(), rpc, r)
			if method == "" || bdev == "lvs0/v1" {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, ErrRefused, method)
			require.ErrorContains(t, err, "offers volume lvs0/v0 already")
		}
	}
	w.sim.Inject(spdktest.Fault{Method: "iscsi_get_target_nodes", Do: spdktest.Fail})
	_, err := PlanExport(t.Context(), w.rpc, r)
	require.ErrorContains(t, err, "find out what else exposes volume lvs0/v0")
}

// A warning names the kinds of exports that the user is not permitted to read, because one of them
// could expose the volume.
func TestUnreadableExportsCauseAWarning(t *testing.T) {
	w := newWorld(t, "v26.05")
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}}
	require.Empty(t, w.plan(r).Warnings)
	p, err := PlanExport(t.Context(), spdkrpc.NewClient(&denying{w.socket, "iscsi_get_target_nodes"}), r)
	require.NoError(t, err)
	require.Len(t, p.Warnings, 1)
	require.Contains(t, p.Warnings[0], "must not read other exports (iSCSI)")
}

// If the user is not permitted to read the names of volumes, List omits them. If reading them
// fails, List returns an error.
func TestListWorksWithoutVolumeNames(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}})
	list, err := List(t.Context(), spdkrpc.NewClient(&denying{w.socket, "bdev_lvol_get_lvols"}), false)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, w.v0, list[0].Volume)
	w.sim.Inject(spdktest.Fault{Method: "bdev_lvol_get_lvols", Do: spdktest.Fail})
	_, err = List(t.Context(), w.rpc, false)
	require.ErrorContains(t, err, "list the volumes")
}

// denying is a Caller that refuses a method, like a proxy whose policy does not allow it.
type denying struct {
	spdkrpc.Caller
	method string
}

func (d *denying) Call(ctx context.Context, method string, params, result any) error {
	if method == d.method {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Denied}
	}
	return d.Caller.Call(ctx, method, params, result)
}

// answering is a Caller that serves a method that the simulated target lacks.
type answering struct {
	spdkrpc.Caller
	method, result string
}

func (a *answering) Call(ctx context.Context, method string, params, result any) error {
	if method == a.method {
		return json.Unmarshal([]byte(a.result), result)
	}
	err := a.Caller.Call(ctx, method, params, result)
	if list, ok := result.(*[]string); ok && method == "rpc_get_methods" {
		*list = append(*list, a.method)
	}
	return err
}
