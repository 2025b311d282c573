package proxy

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/persist"
)

// After `spdk-proxy saved use` with a running proxy, the next target process loads the chosen file,
// despite calls and proxy restarts in the meantime.
func TestChosenConfigurationIsLoaded(t *testing.T) {
	r := newRestartBench(t)
	r.proxy.execute.StartSaving()
	t.Cleanup(r.proxy.execute.StopSaving)
	r.populate(t)
	require.Eventually(t, func() bool { s := r.status(t); return !s.Pending && s.SavedAt != nil }, long, 50e6)
	want := r.call(t, "nvmf_get_subsystems", "")
	r.save(t)
	current := filepath.Join(r.dir, "current.json")
	require.NoError(t, os.Link(current, filepath.Join(r.dir, "wanted.json")))
	r.call(t, "nvmf_delete_subsystem", `{"nqn":"nqn.2016-06.io.spdk:v"}`)
	r.save(t)

	folder, err := persist.OpenFolder(r.dir, 5)
	require.NoError(t, err)
	require.NoError(t, folder.Use("wanted.json"))
	assert.NotNil(t, r.status(t).ChosenAt, "the status shows this before the next change")
	chosen, err := os.ReadFile(current)
	require.NoError(t, err)
	r.call(t, "bdev_null_create", `{"name":"n0","num_blocks":100,"block_size":512}`)
	status := r.save(t)
	assert.Contains(t, r.scrape(), "\nspdk_proxy_target_config_chosen 1\n")
	assert.NotNil(t, status.ChosenAt)
	assert.NotNil(t, status.HeldFile)
	assert.Empty(t, status.Missing)
	r.proxy.execute.StopSaving() // simulates a restart of the proxy
	next, err := NewServer(r.config, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = next.target.Close() })
	require.NoError(t, next.execute.Saver().Save(t.Context(), false))
	now, err := os.ReadFile(current)
	require.NoError(t, err)
	assert.Equal(t, string(chosen), string(now))

	r.target.Crash()
	require.NoError(t, r.target.Restart())
	r.reconnected(t)
	assert.Equal(t, want, r.call(t, "nvmf_get_subsystems", ""))
	status = r.save(t)
	assert.Nil(t, status.ChosenAt)
	assert.Nil(t, status.HeldFile)
	assert.Empty(t, status.Missing)
}

func TestSavedStatusIsAvailableWithoutATarget(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.save(t)
	r.target.Crash()
	require.Eventually(t, func() bool { return r.post(createMalloc).StatusCode == http.StatusBadGateway }, long, 10*time.Millisecond)
	require.Error(t, r.proxy.execute.Saver().Save(t.Context(), false))
	status := r.status(t)
	assert.NotNil(t, status.SavedAt)
	assert.False(t, status.Failed, "there were no changes to save")
	assert.Contains(t, r.scrape(), "\nspdk_proxy_target_config_save_failed 0\n")
	g := r.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"spdkgate_config_save"}`))
	assert.Equal(t, http.StatusForbidden, g.StatusCode)
	assert.Equal(t, http.StatusBadRequest, r.post(`{"id":1,"method":"spdkgate_config_get_status","params":{"x":1}}`).StatusCode)

	without := newBench(t, "v26.05")
	without.target.Crash()
	assert.Contains(t, without.post(`{"id":1,"method":"spdkgate_config_get_status"}`).body, "target.save")
}

func TestTenantsCannotReadSavedStatus(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) {
		c.Target.Save = config.Save{Dir: filepath.Join(t.TempDir(), "target"), Keep: 5}
		c.Roles["volumes"] = config.Role{Allow: rules("spdkgate_*")}
	})
	b.as(t, "csi-of-team-a", "spdkgate_config_get_status", "", http.StatusForbidden)
	b.target.Crash()
	b.as(t, "csi-of-team-a", "spdkgate_config_get_status", "", http.StatusForbidden)
}

// A target that lacks some of its exports is ready, but not strictly ready.
func TestStrictReadinessRequiresAllExports(t *testing.T) {
	r := newRestartBench(t)
	ready := func(path string) int { return r.do("GET", path, "", "", nil).StatusCode }
	assert.Equal(t, http.StatusServiceUnavailable, ready("/readyz/strict"), "the target was not compared with the saved configuration yet")
	r.populate(t)
	r.save(t)
	assert.Equal(t, http.StatusOK, ready("/readyz/strict"))
	require.NoError(t, os.Rename(r.disk, r.disk+".away"))
	current := filepath.Join(r.dir, "current.json")
	require.NoError(t, os.Rename(current, current+".away"))
	r.target.Crash()
	assert.Equal(t, http.StatusServiceUnavailable, ready("/readyz/strict"))
	require.NoError(t, r.target.Restart())
	require.NoError(t, os.Rename(current+".away", current))
	r.reconnected(t)
	assert.Equal(t, http.StatusServiceUnavailable, ready("/readyz/strict"), "the new process was not compared yet")
	r.save(t)
	assert.Equal(t, http.StatusOK, ready("/readyz"))
	assert.Equal(t, http.StatusServiceUnavailable, ready("/readyz/strict"))
	assert.Equal(t, http.StatusMethodNotAllowed, r.do("PUT", "/readyz/strict", "", "", nil).StatusCode)

	require.NoError(t, os.Rename(r.disk+".away", r.disk))
	r.target.Crash()
	require.NoError(t, r.target.Restart())
	r.reconnected(t)
	require.NoError(t, r.proxy.execute.Saver().Save(t.Context(), false))
	assert.Equal(t, http.StatusOK, ready("/readyz/strict"))
	assert.Equal(t, http.StatusServiceUnavailable, newBench(t, "v26.05").do("GET", "/readyz/strict", "", "", nil).StatusCode, "nothing is known without target.save")
}
