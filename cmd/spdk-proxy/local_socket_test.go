package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Programs on this host can make calls at the socket listen_unix, whether the proxy or systemd
// created it.
func TestLocalSocketAcceptsCalls(t *testing.T) {
	path := writeConfig(t, target(t).Socket(), "listen_unix: {path: rpc.sock}\n")
	change(t, path, "password_hash_file: hash", fmt.Sprintf("password_hash_file: hash, local: {users: [%q]}", fmt.Sprint(os.Getuid())))
	socket := filepath.Join(filepath.Dir(path), "rpc.sock")
	call := func(args ...string) outcome {
		return run(t, "", append([]string{"call", "--socket", socket}, args...)...)
	}

	d := start(t, nil, "serve", "--config", path)
	d.waitFor("serving programs of this host")
	o := call("spdk_get_version")
	assert.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, "SPDK v")
	o = call("spdk_kill_instance", "sig_name=SIGTERM")
	assert.NotZero(t, o.code)
	d.waitFor(`"rule":"role careful: deny spdk_kill_instance"`)
	assert.Zero(t, d.stop())
	assert.NoFileExists(t, socket)

	https := systemdSocket(t)
	local, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = local.Close() })
	change(t, path, "127.0.0.1:0", https.Addr().String())
	for range 2 {
		d = startActivated(t, path, https, local)
		o = call("spdk_get_version")
		assert.Zero(t, o.code, o.stderr)
		assert.Zero(t, d.stop())
		_, err = os.Lstat(socket)
		require.NoError(t, err, "it is systemd's")
	}
}
