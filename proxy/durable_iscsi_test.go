package proxy

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

const (
	volumeIQN  = "iqn.2016-06.io.spdk:v"
	initiator3 = "iqn.2026-11.io.spdkgate:host:worker-3"
	initiator4 = "iqn.2026-11.io.spdkgate:host:worker-4"
	awaitISCSI = `{"protocol":"iscsi"}`
)

// exportISCSI exports volume v to worker 3 at two portals, and creates a group for worker 4.
func (r *restartBench) exportISCSI(t *testing.T) {
	t.Helper()
	r.call(t, "nvmf_delete_subsystem", `{"nqn":"`+volumeNQN+`"}`)
	r.call(t, "iscsi_create_portal_group", `{"tag":1,"portals":[{"host":"127.0.0.1","port":"3260"}]}`)
	r.call(t, "iscsi_create_portal_group", `{"tag":2,"portals":[{"host":"127.0.0.1","port":"3261"}]}`)
	r.call(t, "iscsi_create_initiator_group", `{"tag":1003,"initiators":["`+initiator3+`"],"netmasks":["ANY"]}`)
	r.call(t, "iscsi_create_initiator_group", `{"tag":1004,"initiators":["`+initiator4+`"],"netmasks":["ANY"]}`)
	r.createTargetNode(t, "1003")
}

func (r *restartBench) createTargetNode(t *testing.T, group string) {
	t.Helper()
	r.call(t, "iscsi_create_target_node", `{"name":"`+volumeIQN+`","alias_name":"v","pg_ig_maps":[{"pg_tag":1,"ig_tag":`+group+`},{"pg_tag":2,"ig_tag":`+group+`}],"luns":[{"bdev_name":"lvs0/v","lun_id":0}],"queue_depth":64}`)
}

// restartWithoutDisk restarts the target without the volume's disk, and then returns the disk.
func (r *restartBench) restartWithoutDisk(t *testing.T) {
	t.Helper()
	require.NoError(t, os.Rename(r.disk, r.disk+".away"))
	r.crash(t)
	require.NoError(t, os.Rename(r.disk+".away", r.disk))
}

// A target may lack a target node because of a missing disk, but still have its group. Clients can
// then find out which initiators a restart would admit, and can remove the target node.
func TestMissingTargetNodeCanBeRemovedFromTheSavedFile(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.exportISCSI(t)
	assert.Equal(t, "[]", r.call(t, "spdkgate_config_await", awaitISCSI))
	r.restartWithoutDisk(t)
	assert.Equal(t, "[]", r.call(t, "iscsi_get_target_nodes", ""))
	assert.JSONEq(t, `[{"method":"iscsi_create_target_node","iqn":"`+volumeIQN+`","initiators":["`+initiator3+`"]}]`, r.call(t, "spdkgate_config_await", awaitISCSI))
	assert.NotContains(t, r.call(t, "spdkgate_config_await", ""), volumeIQN, "earlier drivers expect only subsystems")
	g := r.post(`{"id":1,"method":"iscsi_delete_target_node","params":{"name":"` + volumeIQN + `"}}`)
	assert.NotZero(t, g.code(t), "SPDK's own response")
	assert.Equal(t, "[]", r.call(t, "spdkgate_config_await", awaitISCSI))
	r.crash(t)
	assert.Equal(t, "[]", r.call(t, "iscsi_get_target_nodes", ""))
}

// A group that exists only in the saved file can be removed.
func TestMissingInitiatorGroupCanBeRemovedFromTheSavedFile(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.exportISCSI(t)
	r.call(t, "iscsi_delete_target_node", `{"name":"`+volumeIQN+`"}`)
	r.startWithout(t, "iscsi_create_initiator_group")
	assert.JSONEq(t, `[{"method":"iscsi_create_initiator_group","tag":1003,"initiators":["`+initiator3+`"]},{"method":"iscsi_create_initiator_group","tag":1004,"initiators":["`+initiator4+`"]}]`, r.call(t, "spdkgate_config_await", awaitISCSI))
	assert.NotZero(t, r.post(`{"id":1,"method":"iscsi_delete_initiator_group","params":{"tag":1003}}`).code(t))
	assert.JSONEq(t, `[{"method":"iscsi_create_initiator_group","tag":1004,"initiators":["`+initiator4+`"]}]`, r.call(t, "spdkgate_config_await", awaitISCSI))
	r.crash(t)
	groups := r.call(t, "iscsi_get_initiator_groups", "")
	assert.NotContains(t, groups, initiator3)
	assert.Contains(t, groups, initiator4)
}

// If a target node is created while the saved file contains another version of it, the new version
// replaces the saved one. A restarted target then admits only the new initiator.
func TestCreatedTargetNodeReplacesTheSavedVersion(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.exportISCSI(t)
	r.restartWithoutDisk(t)
	require.Contains(t, r.call(t, "spdkgate_config_await", awaitISCSI), initiator3)
	r.call(t, "bdev_aio_create", `{"name":"disk0","filename":"`+r.disk+`","block_size":4096}`)
	r.createTargetNode(t, "1004")
	assert.NotContains(t, r.call(t, "spdkgate_config_await", awaitISCSI), volumeIQN)
	r.crash(t)
	nodes := r.call(t, "iscsi_get_target_nodes", "")
	assert.Contains(t, nodes, `"ig_tag":1004`)
	assert.NotContains(t, nodes, `"ig_tag":1003`)
}

// The driver recognizes proxies that lack a parameter by this error.
func TestUnknownParameterOfAwaitIsRejected(t *testing.T) {
	r := newRestartBench(t)
	g := r.post(`{"id":1,"method":"spdkgate_config_await","params":{"from_the_future":"iscsi"}}`)
	assert.NotEqual(t, http.StatusOK, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t))
}
