package proxy

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// newSharingBench creates a proxy with the limits in docs/target.md.
func newSharingBench(t *testing.T, change ...func(*config.Config)) *bench {
	dir := t.TempDir()
	hash := filepath.Join(dir, "hash")
	require.NoError(t, os.WriteFile(hash, []byte(hashes()[adminPassword]), 0o600))
	path := filepath.Join(dir, "config.yaml")
	users := fmt.Sprintf("users: [{name: backup, password_hash_file: %q, roles: [admin]}, {name: csi, password_hash_file: %[1]q, roles: [admin]}]\n", hash)
	example := documented(t, "docs/target.md", "Configure limits", "yaml")[0]
	require.Contains(t, example, "peer_users: [spdk] ", "the user in the example")
	// replace the user spdk with a user that exists on this host
	example = strings.Replace(example, "[spdk] ", "[root] ", 1)
	require.NoError(t, os.WriteFile(path, []byte("listen: \"127.0.0.1:0\"\n"+users+example), 0o600))
	c, err := loadAndCheck(path)
	require.NoError(t, err)
	return newBench(t, "v26.05", func(used *config.Config) {
		socket := used.Target.Socket
		used.Users, used.Target, used.Limits = c.Users, c.Target, c.Limits
		used.Target.Socket = socket
		for _, f := range change {
			f(used)
		}
	})
}

func (b *bench) of(user, body string) got {
	return b.do("POST", "/", user, adminPassword, strings.NewReader(body))
}

// says checks that a response has the status and the message given in a line of the manual.
func (g got) says(t *testing.T, line string) {
	t.Helper()
	status, message, _ := strings.Cut(strings.TrimSpace(line), " ")
	assert.Equal(t, status, fmt.Sprint(g.StatusCode))
	assert.Contains(t, g.body, message)
}

// Users share the target as documented in docs/target.md.
func TestTargetIsSharedFairly(t *testing.T) {
	b := newSharingBench(t)
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Times: -1, Do: spdktest.Hang})
	const list = `{"id":1,"method":"bdev_get_bdevs"}`
	var backup sync.WaitGroup
	ask := func(n int) {
		for range n {
			backup.Go(func() { b.of("backup", list) })
		}
	}
	ask(2)
	require.Eventually(t, func() bool { return b.proxy.target.Loads()["backup"] == target.Load{InFlight: 2} }, long, time.Millisecond)
	ask(8)
	require.Eventually(t, func() bool { return b.proxy.target.Loads()["backup"] == target.Load{InFlight: 2, Waiting: 8} }, long, time.Millisecond)
	g := b.of("backup", list)
	g.says(t, documented(t, "docs/target.md", "Configure limits", "text")[0])
	assert.Equal(t, "1", g.Header.Get("Retry-After"))
	for range 20 {
		assert.Equal(t, http.StatusOK, b.of("csi", version).StatusCode, "other users are not affected")
	}

	changed := *b.config
	changed.Limits.UsersInFlight = nil
	require.NoError(t, b.proxy.Reload(&changed))
	require.Eventually(t, func() bool { return b.proxy.target.Loads()["backup"] == target.Load{InFlight: 10} }, long, time.Millisecond, "the waiting calls are sent")
	changed.Limits.Connections++
	require.ErrorContains(t, b.proxy.Reload(&changed), "limits.connections")
	changed = *b.config
	changed.Target.PeerUsers = nil
	require.ErrorContains(t, b.proxy.Reload(&changed), "target.peer_users")

	answers := strings.Split(strings.TrimSpace(documented(t, "docs/target.md", "Errors and retries", "text")[0]), "\n")
	b.target.Crash()
	backup.Wait()
	require.Eventually(t, func() bool { return b.of("csi", version).StatusCode == http.StatusBadGateway }, long, time.Millisecond)
	b.of("csi", version).says(t, answers[0])
	require.NoError(t, b.target.Restart())
	require.Eventually(t, func() bool { return b.of("csi", version).StatusCode == http.StatusOK }, long, time.Millisecond)
	b.target.ClearFaults()
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Crash})
	b.of("csi", list).says(t, answers[2])
	require.NoError(t, b.target.Restart())
	require.Eventually(t, func() bool { return b.of("csi", version).StatusCode == http.StatusOK }, long, time.Millisecond)
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Do: spdktest.Crash})
	b.of("backup", createMalloc).says(t, answers[1])
}

// A target started with --wait-for-rpc is not ready, but can be initialized through the proxy.
func TestTargetCanBeInitializedThroughTheProxy(t *testing.T) {
	waiting, err := spdktest.Start(spdktest.Options{WaitForRPC: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = waiting.Close() })
	b := newBench(t, "v26.05", func(c *config.Config) { c.Target.Socket = waiting.Socket() })
	ready := func() int { return b.do("GET", "/readyz", "", "", nil).StatusCode }
	assert.Equal(t, http.StatusServiceUnavailable, ready())
	assert.Equal(t, target.Startup, b.proxy.target.State().Phase)
	g := b.post(`{"id":1,"method":"bdev_get_bdevs"}`)
	assert.Equal(t, http.StatusOK, g.StatusCode, "SPDK's own answer")
	assert.Equal(t, -1, g.code(t))
	assert.Equal(t, http.StatusOK, b.post(`{"id":1,"method":"framework_start_init"}`).StatusCode)
	require.Eventually(t, func() bool { return ready() == http.StatusOK }, long, time.Millisecond)
	assert.Equal(t, target.Runtime, b.proxy.target.State().Phase)
}
