package proxy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// The proxy removes unused key files only if it can determine which files are in use.
func TestUnusedKeyFilesAreRemoved(t *testing.T) {
	r := newRestartBench(t)
	r.proxy.execute.StartSaving()
	t.Cleanup(r.proxy.execute.StopSaving)
	unused := filepath.Join(r.keys, "unused.key")
	place := func() {
		require.NoError(t, os.WriteFile(unused, []byte("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"), 0o600))
		old := time.Now().Add(-24 * time.Hour)
		require.NoError(t, os.Chtimes(unused, old, old))
	}
	place()
	r.save(t)
	r.proxy.execute.SweepKeys(t.Context())
	assert.NoFileExists(t, unused)
	assert.Len(t, r.log.Lines(t, "unused key files removed"), 1)
	r.proxy.execute.SweepKeys(t.Context())
	assert.Len(t, r.log.Lines(t, "unused key files removed"), 1, "nothing is left to remove")

	place()
	r.target.Crash()
	r.proxy.execute.SweepKeys(t.Context())
	assert.FileExists(t, unused, "the target cannot say which keys it uses")
}

// If the proxy saves the configuration, it refuses to create a second NVMe-oF target, because SPDK
// would not save it.
func TestSecondTargetIsRefusedIfConfigurationIsSaved(t *testing.T) {
	sent := func(b *bench) (found bool) {
		for _, c := range b.target.Calls() {
			found = found || c.Method == "nvmf_create_target"
		}
		return found
	}
	const create = `{"name":"second"}`
	r := newRestartBench(t)
	g := r.post(rpcCall("nvmf_create_target", create))
	assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t), g.body)
	assert.Contains(t, g.body, "does not save")
	assert.Contains(t, g.body, "Nothing was executed")
	assert.False(t, sent(r.bench))
	b := newBench(t, "v26.05")
	b.post(rpcCall("nvmf_create_target", create))
	assert.True(t, sent(b), "nothing is saved")
}

// If the proxy cannot open a file, it does not start. The error names the key or the file.
func TestServerRequiresItsFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o755))
	for name, c := range map[string]struct {
		change func(*config.Config)
		says   string
	}{
		"certificate": {func(c *config.Config) { c.TLS = config.TLS{CertFile: file + ".none", KeyFile: file + ".none"} }, file + ".none"},
		"peer user":   {func(c *config.Config) { c.Target.PeerUsers = []string{"no such user"} }, "peer_users"},
		"keys":        {func(c *config.Config) { c.Target.Keys.Dir = open }, open},
		"saved":       {func(c *config.Config) { c.Target.Save = config.Save{Dir: filepath.Join(file, "x"), Keep: 1} }, file},
		"journal":     {func(c *config.Config) { c.Target.Freeze.Dir = filepath.Join(file, "x") }, file},
		"log of calls": {func(c *config.Config) {
			c.Log.Calls = config.CallLog{To: config.CallsToFile, Path: filepath.Join(file, "x"), MaxMiB: 1, Keep: 1}
		}, file},
		"hash":      {func(c *config.Config) { c.Users[0].PasswordHash = "x" }, "admin"},
		"role":      {func(c *config.Config) { c.Users[0].Roles = []string{"none"} }, "none"},
		"tenant":    {func(c *config.Config) { c.Users[0].Tenant = "none" }, "none"},
		"method":    {func(c *config.Config) { c.Target.Timeouts.Methods = map[string]config.Duration{"bdev_lvol_crate": 1} }, "bdev_lvol_crate"},
		"balancers": {func(c *config.Config) { c.LoadBalancers.Addresses = []string{"x"} }, "load_balancers"},
	} {
		conf := testConfig(filepath.Join(t.TempDir(), "spdk.sock"))
		c.change(conf)
		s, err := NewServer(conf, Options{})
		require.ErrorContains(t, err, c.says, name)
		assert.Nil(t, s, name)
	}
}
