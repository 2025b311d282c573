package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	volumeNQN = "nqn.2016-06.io.spdk:v"
	worker3   = "nqn.2014-08.org.nvmexpress:uuid:33333333-3333-4333-8333-333333333333"
	worker4   = "nqn.2014-08.org.nvmexpress:uuid:44444444-4444-4444-8444-444444444444"
)

// crash kills the target, and restarts it with the saved configuration.
func (r *restartBench) crash(t *testing.T) {
	t.Helper()
	r.target.Crash()
	require.NoError(t, r.target.Restart())
	r.reconnected(t)
}

// The target crashes after a node was fenced, or after a volume was unpublished or published on
// another node. The restarted target then admits exactly the hosts that the responses have
// confirmed.
func TestAccessChangesAreSavedBeforeTheResponse(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	host := func(nqn string) string { return fmt.Sprintf(`{"nqn":%q,"host":%q}`, volumeNQN, nqn) }
	admitted := func() string { return r.call(t, "nvmf_get_subsystems", "") }
	r.call(t, "nvmf_subsystem_add_host", host(worker3))
	r.crash(t)
	assert.Contains(t, admitted(), worker3)

	const mark = "nqn.2020-04.io.spdk.csi:fenced:worker-3"
	r.call(t, "nvmf_create_subsystem", `{"nqn":"`+mark+`"}`)
	r.call(t, "nvmf_subsystem_remove_host", host(worker3))
	r.crash(t)
	assert.NotContains(t, admitted(), worker3)
	assert.Contains(t, admitted(), mark)

	r.call(t, "nvmf_subsystem_add_host", host(worker4))
	r.crash(t)
	assert.Contains(t, admitted(), worker4)
	r.call(t, "nvmf_delete_subsystem", `{"nqn":"`+volumeNQN+`"}`)
	r.crash(t)
	assert.NotContains(t, admitted(), volumeNQN)
}

// Changes to access are saved before the response even while the target lacks another object.
func TestAccessChangesAreSavedWhileAnObjectIsMissing(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.call(t, "nvmf_create_subsystem", `{"nqn":"nqn.2016-06.io.spdk:w"}`)
	r.call(t, "nvmf_subsystem_add_host", `{"nqn":"nqn.2016-06.io.spdk:w","host":"`+worker3+`"}`)
	require.NoError(t, os.Rename(r.disk, r.disk+".away"))
	r.crash(t)
	require.NoError(t, os.Rename(r.disk+".away", r.disk))
	status := r.save(t)
	require.NotZero(t, status.MissingCount)

	r.call(t, "nvmf_subsystem_remove_host", `{"nqn":"nqn.2016-06.io.spdk:w","host":"`+worker3+`"}`)
	assert.Equal(t, status.MissingCount, r.status(t).MissingCount)
	r.crash(t)
	subsystems := r.call(t, "nvmf_get_subsystems", "")
	assert.NotContains(t, subsystems, worker3)
	assert.Contains(t, subsystems, `"nsid":1`, "the disk and its namespace are back")
	assert.Empty(t, r.save(t).Missing)
}

// startWithout restarts the target with a copy of the saved file that lacks all calls of these
// methods, as an administrator might do.
func (r *restartBench) startWithout(t *testing.T, methods ...string) {
	t.Helper()
	current := filepath.Join(r.dir, "current.json")
	saved, err := os.ReadFile(current)
	require.NoError(t, err)
	var file struct {
		Subsystems []struct {
			Subsystem string           `json:"subsystem"`
			Config    []map[string]any `json:"config"`
		} `json:"subsystems"`
	}
	require.NoError(t, json.Unmarshal(saved, &file))
	for i := range file.Subsystems {
		s := &file.Subsystems[i]
		s.Config = slices.DeleteFunc(s.Config, func(c map[string]any) bool { return slices.Contains(methods, c["method"].(string)) })
	}
	edited, err := json.Marshal(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(current, edited, 0o600))
	r.target.Crash()
	require.NoError(t, r.target.Restart())
	require.NoError(t, os.WriteFile(current, saved, 0o600))
	r.reconnected(t)
}

// The target crashes after a volume was deleted, alone or with its lvstore, and before the
// configuration was saved. The volume's export does not count as missing, and other changes are
// saved.
func TestDeletedVolumeIsNotMissingAfterACrash(t *testing.T) {
	for method, params := range map[string]string{"bdev_lvol_delete": `{"name":"lvs0/v"}`, "bdev_lvol_delete_lvstore": `{"lvs_name":"lvs0"}`} {
		for _, executed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s executed %t", method, executed), func(t *testing.T) {
				r := newRestartBench(t)
				r.populate(t)
				r.save(t)
				r.target.Inject(spdktest.Fault{Method: method, Times: 1, Do: spdktest.Crash, Executed: executed})
				assert.Equal(t, http.StatusGatewayTimeout, r.post(rpcCall(method, params)).StatusCode)
				require.NoError(t, r.target.Restart())
				r.reconnected(t)
				status := r.save(t)
				assert.Empty(t, status.Missing)
				text, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
				require.NoError(t, err)
				assert.Equal(t, !executed, strings.Contains(string(text), "nvmf_subsystem_add_ns"))

				r.call(t, "nvmf_delete_subsystem", `{"nqn":"`+volumeNQN+`"}`)
				r.call(t, "nvmf_create_subsystem", `{"nqn":"nqn.2016-06.io.spdk:rv2"}`)
				assert.Empty(t, r.status(t).Missing)
				r.crash(t)
				subsystems := r.call(t, "nvmf_get_subsystems", "")
				assert.Contains(t, subsystems, "rv2")
				assert.NotContains(t, subsystems, volumeNQN)
			})
		}
	}
}

// If a change cannot be saved, the response says that the change was made. If the client then
// repeats a call that SPDK refuses, or calls spdkgate_config_await, the response again waits for
// the save.
func TestResponseReportsUnsavedChange(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	block := filepath.Join(r.dir, ".new-current.json")
	require.NoError(t, os.MkdirAll(filepath.Join(block, "x"), 0o700)) // makes every save fail
	g := r.post(`{"id":1,"method":"nvmf_subsystem_remove_host","params":{"nqn":"` + volumeNQN + `","host":"nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111"}}`)
	assert.Equal(t, http.StatusInternalServerError, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeNotSaved, g.code(t))
	assert.Contains(t, g.body, "the target executed the call")
	assert.NotContains(t, g.body, r.dir)
	assert.Equal(t, jsonrpc.CodeNotSaved, r.post(`{"id":1,"method":"spdkgate_config_await"}`).code(t))
	require.NoError(t, os.RemoveAll(block))
	assert.Equal(t, "[]", r.call(t, "spdkgate_config_await", `{"nqn":"`+volumeNQN+`"}`))
	r.crash(t)
	assert.NotContains(t, r.call(t, "nvmf_get_subsystems", ""), "11111111-1111")
}

// If the saved file admits a host to a subsystem that the target lacks, clients can find this out,
// and can remove the host although SPDK refuses the call.
func TestMissingHostCanBeRemovedFromTheSavedFile(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.call(t, "nvmf_subsystem_add_host", `{"nqn":"`+volumeNQN+`","host":"`+worker3+`"}`)
	r.startWithout(t, "nvmf_create_subsystem", "nvmf_subsystem_add_ns", "nvmf_subsystem_add_host", "nvmf_subsystem_add_listener")
	missing := r.call(t, "spdkgate_config_await", `{"host":"`+worker3+`"}`)
	assert.JSONEq(t, `[{"method":"nvmf_subsystem_add_host","nqn":"`+volumeNQN+`","host":"`+worker3+`"}]`, missing)
	g := r.post(`{"id":1,"method":"nvmf_subsystem_remove_host","params":{"nqn":"` + volumeNQN + `","host":"` + worker3 + `"}}`)
	assert.NotZero(t, g.code(t), "SPDK's own response")
	assert.Equal(t, "[]", r.call(t, "spdkgate_config_await", `{"host":"`+worker3+`"}`))
	r.crash(t)
	subsystems := r.call(t, "nvmf_get_subsystems", "")
	assert.Contains(t, subsystems, volumeNQN)
	assert.NotContains(t, subsystems, worker3)
}

// If the saved file admits a host to a subsystem that exists on the target without this host,
// deleting the subsystem also removes the host from the file. Therefore, after a confirmed
// deletion, a client need not check the exports of a restarted target.
func TestDeletedSubsystemLeavesNoMissingHost(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.call(t, "nvmf_subsystem_add_host", `{"nqn":"`+volumeNQN+`","host":"`+worker3+`"}`)
	r.startWithout(t, "nvmf_subsystem_add_host")
	missing := r.call(t, "spdkgate_config_await", `{"host":"`+worker3+`"}`)
	assert.JSONEq(t, `[{"method":"nvmf_subsystem_add_host","nqn":"`+volumeNQN+`","host":"`+worker3+`"}]`, missing)
	r.call(t, "nvmf_delete_subsystem", `{"nqn":"`+volumeNQN+`"}`)
	assert.Equal(t, "[]", r.call(t, "spdkgate_config_await", `{"nqn":"`+volumeNQN+`"}`))
	r.crash(t)
	assert.NotContains(t, r.call(t, "nvmf_get_subsystems", ""), volumeNQN)
}

// Many concurrent calls share a small number of saves.
func TestConcurrentCallsShareSaves(t *testing.T) {
	notSaved := fmt.Sprintf(`"code":%d`, jsonrpc.CodeNotSaved)
	r := newRestartBench(t)
	r.save(t)
	r.target.ForgetCalls()
	const calls = 100
	done := make(chan int, calls)
	for i := range calls {
		go func() {
			response := r.post(fmt.Sprintf(`{"id":1,"method":"nvmf_create_subsystem","params":{"nqn":"nqn.2016-06.io.spdk:s%d"}}`, i))
			for deadline := time.Now().Add(long); strings.Contains(response.body, notSaved) && time.Now().Before(deadline); { // on a busy machine
				response = r.post(`{"id":1,"method":"spdkgate_config_await"}`)
			}
			done <- response.StatusCode
		}()
	}
	for range calls {
		assert.Equal(t, http.StatusOK, <-done)
	}
	reads := 0
	for _, c := range r.target.Calls() {
		if c.Method == "framework_get_config" && c.Params["name"] == "nvmf" {
			reads++
		}
	}
	assert.Less(t, reads, calls, "each save reads twice")
	r.crash(t)
	subsystems := r.call(t, "nvmf_get_subsystems", "")
	for i := range calls {
		assert.Contains(t, subsystems, fmt.Sprintf(`spdk:s%d"`, i))
	}
}

// The target dies after deleting an exported snapshot of a frozen volume, before the configuration
// is saved. After the restart, the snapshot's export does not count as missing.
func TestDeletionBelowFrozenVolumeIsRecorded(t *testing.T) {
	r := newRestartBench(t, withJournal(t))
	r.call(t, "bdev_aio_create", fmt.Sprintf(`{"name":"disk0","filename":%q,"block_size":4096}`, r.disk))
	r.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"disk0","lvs_name":"lvs0"}`)
	r.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":8}`)
	r.call(t, "bdev_lvol_snapshot", `{"lvol_name":"lvs0/v","snapshot_name":"s"}`)
	r.call(t, "nvmf_create_transport", `{"trtype":"TCP"}`)
	for i, name := range []string{"v", "s"} {
		nqn := "nqn.2016-06.io.spdk:" + name
		r.call(t, "nvmf_create_subsystem", fmt.Sprintf(`{"nqn":%q,"ana_reporting":true}`, nqn))
		r.call(t, "nvmf_subsystem_add_ns", fmt.Sprintf(`{"nqn":%q,"namespace":{"bdev_name":"lvs0/%s"}}`, nqn, name))
		r.call(t, "nvmf_subsystem_add_listener", fmt.Sprintf(`{"nqn":%q,"listen_address":{"trtype":"TCP","traddr":"127.0.0.1","trsvcid":"442%d"}}`, nqn, i))
	}
	require.NoError(t, r.target.ConnectHost("nqn.2016-06.io.spdk:v", "nqn.2016-06.io.spdk:host"))
	r.save(t)
	assert.Contains(t, r.call(t, safeDeleteMethod, `{"name":"lvs0/s"}`), `"frozen":true`)
	r.target.Crash()
	require.NoError(t, r.target.Restart())
	r.reconnected(t)
	status := r.save(t)
	assert.Empty(t, status.Missing)
	assert.Nil(t, status.HeldFile)
}
