package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A restartBench is a proxy that saves the configuration and stores keys, with a target that starts
// with the saved configuration.
type restartBench struct {
	*bench
	dir, keys string
	disk      string
}

func newRestartBench(t *testing.T, change ...func(*config.Config)) *restartBench {
	r := &restartBench{dir: filepath.Join(t.TempDir(), "target"), keys: filepath.Join(t.TempDir(), "keys"), disk: filepath.Join(t.TempDir(), "disk")}
	require.NoError(t, os.WriteFile(r.disk, nil, 0o600))
	require.NoError(t, os.Truncate(r.disk, 256<<20))
	target, err := spdktest.Start(spdktest.Options{ConfigFile: filepath.Join(r.dir, "current.json"), DataDir: t.TempDir(), IgnoreInitErrors: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	r.bench = newBench(t, "v26.05", append([]func(*config.Config){func(c *config.Config) {
		c.Target.Socket = target.Socket()
		c.Target.Save = config.Save{Dir: r.dir, Keep: 5}
		c.Target.Keys = config.Keys{Dir: r.keys}
	}}, change...)...)
	r.target = target
	return r
}

// call makes a call that must succeed, and returns its result.
func (b *bench) call(t *testing.T, method, params string) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)
	if params != "" {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	}
	g := b.post(body)
	var r struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(g.body), &r), g.body)
	require.Empty(t, string(r.Error), "%s %s", method, params)
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	return string(r.Result)
}

func (r *restartBench) save(t *testing.T) (status spdkrpc.ProxySavedConfig) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.call(t, "spdkgate_config_save", "")), &status))
	return status
}

func (r *restartBench) status(t *testing.T) (status spdkrpc.ProxySavedConfig) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.call(t, "spdkgate_config_get_status", "")), &status))
	return status
}

const secret = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"

// populate exports a volume to a host with a key.
func (r *restartBench) populate(t *testing.T) {
	t.Helper()
	r.call(t, "bdev_aio_create", fmt.Sprintf(`{"name":"disk0","filename":%q,"block_size":4096}`, r.disk))
	r.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"disk0","lvs_name":"lvs0"}`)
	volume := r.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v","size_in_mib":8}`)
	r.call(t, "nvmf_create_transport", `{"trtype":"TCP"}`)
	r.call(t, "nvmf_create_subsystem", `{"nqn":"nqn.2016-06.io.spdk:v","serial_number":"S"}`)
	r.call(t, "nvmf_subsystem_add_ns", `{"nqn":"nqn.2016-06.io.spdk:v","namespace":{"bdev_name":`+volume+`}}`)
	r.call(t, "spdkgate_key_add", `{"name":"host-a","secret":"`+secret+`"}`)
	r.call(t, "nvmf_subsystem_add_host", `{"nqn":"nqn.2016-06.io.spdk:v","host":"nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111","dhchap_key":"host-a"}`)
	r.call(t, "nvmf_subsystem_add_listener", `{"nqn":"nqn.2016-06.io.spdk:v","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}}`)
}

func (r *restartBench) state(t *testing.T) (state []string) {
	t.Helper()
	for _, method := range []string{"nvmf_get_subsystems", "nvmf_get_transports", "bdev_get_bdevs", "bdev_lvol_get_lvstores", "keyring_get_keys"} {
		state = append(state, r.call(t, method, ""))
	}
	return state
}

// reconnected waits until the proxy has connected to the restarted target.
func (r *restartBench) reconnected(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return r.post(`{"id":1,"method":"bdev_get_iostat"}`).StatusCode == http.StatusOK }, long, 10e6)
}

func TestRestartedTargetIsRestored(t *testing.T) {
	r := newRestartBench(t)
	r.proxy.execute.StartSaving()
	t.Cleanup(r.proxy.execute.StopSaving)
	r.populate(t)
	require.Eventually(t, func() bool { s := r.status(t); return !s.Pending && s.SavedAt != nil }, long, 50e6, "the proxy must save the configuration")
	before := r.state(t)
	r.target.Crash()
	require.NoError(t, r.target.Restart())
	r.reconnected(t)
	assert.Equal(t, before, r.state(t))
	r.call(t, "nvmf_subsystem_remove_listener", `{"nqn":"nqn.2016-06.io.spdk:v","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}}`)
	status := r.save(t)
	assert.Empty(t, status.Missing, "an object that a call removed is not missing")
	assert.Nil(t, status.HeldFile)
	text, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(text), "add_listener")
	assert.NotContains(t, string(text), secret, "keys are in separate files")
	assert.NotContains(t, r.log.String(), secret)
}

func TestSavedFileSurvivesTargetWithoutConfiguration(t *testing.T) {
	r := newRestartBench(t)
	r.populate(t)
	r.save(t)
	before, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
	require.NoError(t, err)
	require.NoError(t, os.Rename(filepath.Join(r.dir, "current.json"), filepath.Join(r.dir, "x")))
	r.target.Crash()
	require.NoError(t, r.target.Restart())
	require.NoError(t, os.Rename(filepath.Join(r.dir, "x"), filepath.Join(r.dir, "current.json")))
	r.reconnected(t)

	r.call(t, "nvmf_create_transport", `{"trtype":"TCP"}`)
	status := r.save(t)
	assert.NotZero(t, status.MissingCount)
	assert.Contains(t, strings.Join(status.Missing, "\n"), "nvmf_create_subsystem (new-nqn nqn.2016-06.io.spdk:v)")
	require.NotNil(t, status.HeldFile)
	after, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	assert.Contains(t, r.log.String(), "the target lacks parts of its saved configuration")

	r.call(t, "spdkgate_config_save", `{"accept_loss":true}`)
	assert.Empty(t, r.status(t).Missing)
	after, err = os.ReadFile(filepath.Join(r.dir, "current.json"))
	require.NoError(t, err)
	assert.NotContains(t, string(after), "nqn.2016-06.io.spdk:v")
	kept, err := filepath.Glob(filepath.Join(r.dir, "replaced-*.json"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	text, err := os.ReadFile(kept[0])
	require.NoError(t, err)
	assert.Equal(t, string(before), string(text))
}

func TestOnlyChangesTriggerASave(t *testing.T) {
	r := newRestartBench(t)
	r.save(t)
	pending := func() bool { return r.proxy.execute.Saver().Status().Pending }
	r.call(t, "bdev_get_bdevs", "")
	r.call(t, "bdev_get_iostat", "")
	r.call(t, "bdev_get_iostat", `{"reset_mode":"all"}`)
	r.call(t, "bdev_reset_iostat", "")
	assert.False(t, pending(), "reading, and changes that SPDK does not save")
	r.post(`{"id":1,"method":"bdev_malloc_delete","params":{"name":"none"}}`)
	assert.False(t, pending(), "SPDK refused it")
	r.post(`{"id":1,"method":"bdev_malloc_create","params":{"name":"m"}}`)
	r.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc))
	assert.False(t, pending(), "the call did not reach SPDK")
	r.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Times: 1, Do: spdktest.Close, Executed: true})
	assert.Equal(t, http.StatusGatewayTimeout, r.post(createMalloc).StatusCode)
	assert.True(t, pending(), "the call may have been executed")
	r.reconnected(t)
	r.save(t)
	assert.False(t, pending())
	r.call(t, "bdev_null_create", `{"name":"n0","num_blocks":100,"block_size":512}`)
	assert.True(t, pending())
	r.save(t)
	r.call(t, "spdkgate_key_add", `{"name":"k","secret":"`+secret+`"}`)
	assert.False(t, pending(), "the change is saved before the response")
}

// If SPDK executes a change after the call's deadline, the change is saved, even if the proxy has
// read the configuration at the deadline.
func TestLateChangesAreSaved(t *testing.T) {
	r := newRestartBench(t, func(c *config.Config) {
		c.Target.Timeouts.Methods = map[string]config.Duration{"bdev_malloc_create": config.Duration(10 * time.Millisecond)}
	})
	r.save(t)
	r.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 500 * time.Millisecond})
	require.Equal(t, http.StatusGatewayTimeout, r.post(createMalloc).StatusCode)
	require.NoError(t, r.proxy.execute.Saver().Save(t.Context(), false))
	require.Eventually(t, func() bool { return len(r.log.Lines(t, "late reply")) == 1 }, long, 5*time.Millisecond)
	// on a busy machine, SPDK has executed the call before the proxy read the configuration
	if !r.proxy.execute.Saver().Status().Pending {
		text, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
		require.NoError(t, err)
		assert.Contains(t, string(text), "bdev_malloc_create", "the change was executed, but is neither saved nor pending")
	}
	r.save(t)
	text, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "bdev_malloc_create")

	r.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 100 * time.Millisecond})
	require.Equal(t, http.StatusGatewayTimeout, r.post(createMalloc).StatusCode)
	r.save(t)
	require.Eventually(t, func() bool { return len(r.log.Lines(t, "late reply")) == 2 }, long, 5*time.Millisecond)
	assert.False(t, r.proxy.execute.Saver().Status().Pending, "SPDK refused the call, because the object exists")
}

func TestKeysCanBeManagedThroughTheProxy(t *testing.T) {
	r := newRestartBench(t)
	r.call(t, "spdkgate_key_add", `{"name":"k","secret":"`+secret+`"}`)
	r.call(t, "spdkgate_key_add", `{"name":"k","secret":"`+secret+`"}`)
	path := filepath.Join(r.keys, "k.key")
	assert.FileExists(t, path)
	assert.Contains(t, r.call(t, "keyring_get_keys", ""), path)
	other := "DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQGwAAAA:"
	for _, c := range []struct {
		params string
		status int
		code   int
	}{
		{`{"name":"k","secret":"` + secret + `x"}`, http.StatusOK, -22},
		{`{"name":"k2","secret":"` + other + `"}`, http.StatusOK, -22}, // has a wrong checksum
		{`{"name":"../k","secret":"` + secret + `"}`, http.StatusBadRequest, -32602},
		{`{"name":"k"}`, http.StatusBadRequest, -32602},
		{`{"name":"k","secret":7}`, http.StatusBadRequest, -32602},
	} {
		g := r.post(`{"id":1,"method":"spdkgate_key_add","params":` + c.params + `}`)
		assert.Equal(t, c.status, g.StatusCode, "%s: %s", c.params, g.body)
		assert.Equal(t, c.code, g.code(t), c.params)
		assert.NotContains(t, g.body, secret[10:20])
	}
	r.call(t, "spdkgate_key_remove", `{"name":"k"}`)
	assert.NoFileExists(t, path)
	assert.Equal(t, -126, r.post(`{"id":1,"method":"spdkgate_key_remove","params":{"name":"k"}}`).code(t))
	assert.NotContains(t, r.log.String(), secret[10:20], "the secret is not in the log")
	assert.Contains(t, r.log.String(), `"name":"k"`)
}

func TestOlderTargetsRefuseKeys(t *testing.T) {
	b := newBench(t, "v24.01", func(c *config.Config) { c.Target.Keys.Dir = filepath.Join(t.TempDir(), "keys") })
	g := b.post(`{"id":1,"method":"spdkgate_key_add","params":{"name":"k","secret":"` + secret + `"}}`)
	assert.Equal(t, http.StatusBadRequest, g.StatusCode)
	assert.Contains(t, g.body, "v24.05", "the error names the release that has the method")
}

func TestCallsForDisabledKeysAndSavingAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	for method, key := range map[string]string{"spdkgate_key_add": "target.keys", "spdkgate_config_save": "target.save"} {
		params := map[string]string{"spdkgate_key_add": `,"params":{"name":"k","secret":"` + secret + `"}`}[method]
		g := b.post(`{"id":1,"method":"` + method + `"` + params + `}`)
		assert.Equal(t, http.StatusBadRequest, g.StatusCode)
		assert.Contains(t, g.body, key)
	}
	discovered := b.call(t, "rpc.discover", "")
	assert.NotContains(t, discovered, "spdkgate_key_add")
	assert.Contains(t, newRestartBench(t).call(t, "rpc.discover", ""), "spdkgate_key_add")
}

func TestTenantsCanManageOnlyTheirOwnKeys(t *testing.T) {
	keysDir := filepath.Join(t.TempDir(), "keys")
	b := newTenantBench(t, func(c *config.Config) {
		c.Target.Keys.Dir = keysDir
		for name, prefix := range map[string]string{"team-a": "a-", "team-b": "b-"} {
			tenant := c.Tenants[name]
			tenant.KeyPrefixes = []string{prefix}
			tenant.Quota.Keys = new(3)
			c.Tenants[name] = tenant
		}
		c.Roles["volumes"] = config.Role{Allow: rules("spdkgate_key_*", "keyring_get_keys", "keyring_file_*")}
	})
	add := `{"name":"%s","secret":"` + secret + `"}`
	const a, other = "csi-of-team-a", "csi-of-team-b"
	assert.Contains(t, b.as(t, a, "spdkgate_key_add", fmt.Sprintf(add, "a-1"), http.StatusOK).body, "true")
	b.as(t, a, "spdkgate_key_add", fmt.Sprintf(add, "b-1"), http.StatusForbidden)
	b.as(t, a, "spdkgate_key_add", fmt.Sprintf(add, "x"), http.StatusForbidden)
	assert.Contains(t, b.as(t, other, "spdkgate_key_add", fmt.Sprintf(add, "b-1"), http.StatusOK).body, "true")
	// The responses for another tenant's key and for a missing key are identical.
	theirs := b.as(t, a, "spdkgate_key_remove", `{"name":"b-1"}`, http.StatusOK)
	none := b.as(t, a, "spdkgate_key_remove", `{"name":"b-2"}`, http.StatusOK)
	own := b.as(t, a, "spdkgate_key_remove", `{"name":"a-2"}`, http.StatusOK)
	assert.Equal(t, -126, theirs.code(t))
	assert.Equal(t, theirs.body, none.body)
	assert.Equal(t, theirs.body, own.body)
	assert.FileExists(t, filepath.Join(keysDir, "b-1.key"))
	b.as(t, a, "keyring_file_add_key", `{"name":"a-3","path":"`+filepath.Join(keysDir, "b-1.key")+`"}`, http.StatusForbidden)
	b.as(t, a, "spdkgate_config_save", "", http.StatusForbidden)
	for _, name := range []string{"a-8", "a-9"} {
		b.as(t, a, "spdkgate_key_add", fmt.Sprintf(add, name), http.StatusOK)
	}
	full := b.as(t, a, "spdkgate_key_add", fmt.Sprintf(add, "a-10"), http.StatusOK)
	assert.Equal(t, -28, full.code(t))
	assert.Contains(t, full.body, "quota.keys")
	for _, name := range []string{"a-8", "a-9"} {
		b.as(t, a, "spdkgate_key_remove", `{"name":"`+name+`"}`, http.StatusOK)
	}
	assert.Contains(t, b.as(t, a, "spdkgate_key_remove", `{"name":"a-1"}`, http.StatusOK).body, "true")

	// A tenant's changes to keys run one at a time, and do not delay other tenants' changes.
	give, err := b.proxy.execute.HoldKeys(t.Context(), "team-a")
	require.NoError(t, err)
	waits := make(chan got)
	go func() { waits <- b.as(t, a, "spdkgate_key_add", fmt.Sprintf(add, "a-4"), http.StatusOK) }()
	b.as(t, other, "spdkgate_key_add", fmt.Sprintf(add, "b-4"), http.StatusOK)
	assert.Never(t, func() bool { _, err := os.Stat(filepath.Join(keysDir, "a-4.key")); return err == nil }, 50*time.Millisecond, 5*time.Millisecond)
	give()
	assert.Contains(t, (<-waits).body, "true")
}

func TestEnablingSavingRequiresARestart(t *testing.T) {
	r := newRestartBench(t)
	changed := *r.config
	changed.Target.Save.Keep = 7
	require.ErrorContains(t, r.proxy.Reload(&changed), "target.save has changed")
	changed = *r.config
	changed.Target.Keys.Dir = "/elsewhere"
	require.ErrorContains(t, r.proxy.Reload(&changed), "target.keys has changed")
}

func TestRestartPageExampleWorks(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk0")
	require.NoError(t, os.WriteFile(disk, nil, 0o600))
	require.NoError(t, os.Truncate(disk, 256<<20))
	here := strings.NewReplacer("192.0.2.11", "127.0.0.1", "/var/lib", dir, "/srv/disk0", disk, "/var/tmp", dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "spdk-proxy"), 0o700))
	text := here.Replace(documented(t, "docs/restart.md", "Save and restore the configuration", "yaml")[0])
	path := filepath.Join(dir, "config.yaml")
	users := fmt.Sprintf("listen: \"127.0.0.1:0\"\ntls: {insecure_plaintext: true}\nusers: [{name: admin, password_hash: %q, roles: [admin]}]\n", hashes()[adminPassword])
	require.NoError(t, os.WriteFile(path, []byte(users+text), 0o600))
	c, err := config.Load(path)
	require.NoError(t, err)
	target, err := spdktest.Start(spdktest.Options{Socket: c.Target.Socket, DataDir: t.TempDir(), ConfigFile: filepath.Join(c.Target.Save.Dir, "current.json")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	r := &restartBench{bench: newBench(t, "v26.05", func(used *config.Config) { *used = *c })}

	for line := range strings.Lines(here.Replace(documented(t, "docs/restart.md", "Save and restore the configuration", "json")[0])) {
		var call struct {
			Method string
			Params json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(line), &call), line)
		r.call(t, call.Method, string(call.Params))
	}
	r.save(t)
	before := r.state(t)
	target.Crash()
	require.NoError(t, target.Restart())
	r.reconnected(t)
	assert.Equal(t, before, r.state(t))
	assert.Contains(t, before[0], "nqn.2016-06.io.spdk:host-1")
}
