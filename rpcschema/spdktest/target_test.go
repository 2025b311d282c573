package spdktest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type p = map[string]any

// A bench is a target with a client.
type bench struct {
	*testing.T
	target *Target
	client *spdkrpc.Socket
}

func start(t *testing.T, opts Options) *bench {
	t.Helper()
	target, err := Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	client := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { _ = client.Close() })
	return &bench{t, target, client}
}

// restart restarts the target, and waits until the client is disconnected.
func (b *bench) restart() {
	b.Helper()
	require.NoError(b, b.target.Restart())
	require.Eventually(b, func() bool { return b.call("spdk_get_version", nil, nil) == nil }, time.Minute, time.Millisecond)
}

func (b *bench) call(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return b.client.Call(ctx, method, params, result)
}

func (b *bench) ok(method string, params any) {
	b.Helper()
	require.NoError(b, b.call(method, params, nil), method)
}

func (b *bench) text(method string, params any) (text string) {
	b.Helper()
	require.NoError(b, b.call(method, params, &text), method)
	return text
}

func (b *bench) code(method string, params any) int {
	b.Helper()
	var e *spdkrpc.Error
	require.ErrorAs(b, b.call(method, params, nil), &e, method)
	return e.Code
}

// disk creates a sparse file of the given size in MiB.
func (b *bench) disk(mib int64) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "disk")
	require.NoError(b, os.WriteFile(path, nil, 0o600))
	require.NoError(b, os.Truncate(path, mib<<20))
	return path
}

func (b *bench) aio(path string) {
	b.Helper()
	b.ok("bdev_aio_create", p{"name": "aio", "filename": path, "block_size": 512})
}

// store creates the lvstore lvs on a new disk and returns the disk.
func (b *bench) store() string {
	b.Helper()
	path := b.disk(1024)
	b.aio(path)
	b.ok("bdev_lvol_create_lvstore", p{"bdev_name": "aio", "lvs_name": "lvs"})
	return path
}

func (b *bench) lvol(name string, mib int) string {
	b.Helper()
	return b.text("bdev_lvol_create", p{"lvs_name": "lvs", "lvol_name": name, "size_in_mib": mib, "thin_provision": true})
}

func (b *bench) bdev(name string) spdkrpc.BdevInfo {
	b.Helper()
	var list []spdkrpc.BdevInfo
	require.NoError(b, b.call("bdev_get_bdevs", p{"name": name}, &list), name)
	return list[0]
}

func (b *bench) names(method, member string) (names []string) {
	b.Helper()
	var list []map[string]any
	require.NoError(b, b.call(method, nil, &list), method)
	for _, object := range list {
		names = append(names, fmt.Sprint(object[member]))
	}
	return names
}

func TestStartServesTheRequestedRelease(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	socket := filepath.Join(dir, "spdk.sock")
	b := start(t, Options{Socket: socket, DataDir: data, Release: rpcschema.MustRelease("v25.05")})
	var version spdkrpc.FrameworkVersion
	require.NoError(t, b.call("spdk_get_version", nil, &version))
	assert.Equal(t, "SPDK v25.05", version.Version)
	assert.Equal(t, socket, b.target.Socket())
	assert.Equal(t, rpcschema.MustRelease("v25.05"), b.target.Release())

	_, err := Start(Options{Socket: socket})
	require.ErrorContains(t, err, "is in use")
	_, err = Start(Options{DataDir: data})
	require.ErrorContains(t, err, "belongs to another target")
	_, err = Start(Options{Socket: filepath.Join(dir, "missing", "spdk.sock"), DataDir: filepath.Join(dir, "data")})
	require.Error(t, err)
	// The directory is available, because the failed start has released it.
	other := start(t, Options{DataDir: filepath.Join(dir, "data")})
	require.NoError(t, b.call("spdk_get_version", nil, nil), "the failed starts did not affect it")

	require.NoError(t, b.target.Close())
	require.Error(t, b.target.Restart())
	require.NoFileExists(t, socket)
	require.NoFileExists(t, socket+".lock")
	require.FileExists(t, filepath.Join(data, MarkerFile))
	start(t, Options{Socket: socket, DataDir: data})
	require.NoError(t, other.target.Close())
	require.NoDirExists(t, filepath.Dir(other.target.Socket()))
}

func TestOnlyStartupMethodsWorkInStartup(t *testing.T) {
	b := start(t, Options{WaitForRPC: true})
	assert.Equal(t, -1, b.code("bdev_get_bdevs", nil))
	b.ok("iscsi_set_options", p{"max_sessions": 7})
	waited := make(chan error, 1)
	go func() { waited <- b.call("framework_wait_init", nil, nil) }()
	b.ok("framework_start_init", nil)
	require.NoError(t, <-waited)
	assert.Equal(t, -1, b.code("framework_start_init", nil))
	b.ok("bdev_get_bdevs", nil)
	b.restart()
	assert.Equal(t, -1, b.code("bdev_get_bdevs", nil), "after a restart, the target is in the startup state again")
}

func TestPollingTargetAcceptsOneConnectionPerPoll(t *testing.T) {
	b := start(t, Options{Poll: 20 * time.Millisecond})
	begun := time.Now()
	for range 5 {
		c, err := net.Dial("unix", b.target.Socket())
		require.NoError(t, err)
		defer c.Close()
	}
	b.ok("spdk_get_version", nil) // succeeds on the sixth connection
	assert.GreaterOrEqual(t, time.Since(begun), 100*time.Millisecond)
}

func TestCallsAreRecorded(t *testing.T) {
	b := start(t, Options{})
	require.Error(t, b.call("bdev_get_bdevs", p{"name": "nobody"}, nil))
	require.Error(t, b.call("bdev_get_bdevs", p{"nme": "x"}, nil))
	require.Error(t, b.call("no_such_method", p{"a": "b"}, nil))
	b.ok("bdev_null_create", p{"name": "n", "num_blocks": 10, "block_size": 512})
	calls := b.target.Calls()
	require.Len(t, calls, 4)
	assert.Equal(t, "bdev_get_bdevs", calls[0].Method)
	assert.Equal(t, -19, calls[0].Err.Code)
	assert.Equal(t, -32603, calls[1].Err.Code)
	assert.Nil(t, calls[1].Params)
	assert.Equal(t, "no_such_method", calls[2].Method)
	assert.Equal(t, -32601, calls[2].Err.Code)
	assert.Nil(t, calls[3].Err)
	assert.Equal(t, "n", calls[3].Params["name"])

	b.target.ForgetCalls()
	assert.Empty(t, b.target.Calls())
	for i := range journalSize + 3 {
		b.target.journal.add(Call{Method: fmt.Sprint(i)})
	}
	calls = b.target.Calls()
	require.Len(t, calls, journalSize)
	assert.Equal(t, "3", calls[0].Method)
	assert.Equal(t, fmt.Sprint(journalSize+2), calls[journalSize-1].Method)
}

func TestLogContainsNoSecrets(t *testing.T) {
	var log bytes.Buffer
	b := start(t, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	b.ok("iscsi_create_auth_group", p{"tag": 1, "secrets": []p{{"user": "tim", "secret": "hush hush", "muser": "tom", "msecret": "quiet now"}}})
	key := p{"name": "k", "cipher": "AES_XTS", "key": "00112233445566778899aabbccddeeff", "key2": "ffeeddccbbaa99887766554433221100"}
	b.ok("accel_crypto_key_create", key)
	require.NoError(t, b.target.Close())
	assert.Contains(t, log.String(), "iscsi_create_auth_group")
	assert.Contains(t, log.String(), "tim")
	for _, secret := range []string{"hush hush", "quiet now", "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"} {
		assert.NotContains(t, log.String(), secret)
	}
}

// TestCloseEndsRunningCalls checks that Close does not wait for running calls.
func TestCloseEndsRunningCalls(t *testing.T) {
	b := start(t, Options{})
	done := make(chan error, 1)
	go func() { done <- b.call("bdev_get_bdevs", p{"name": "nobody", "timeout": 3_600_000}, nil) }()
	b.target.Inject(Fault{Method: "bdev_get_iostat", Delay: time.Hour})
	go func() { _ = b.call("bdev_get_iostat", nil, nil) }()
	for b.call("spdk_get_version", nil, nil) != nil {
	}
	require.NoError(t, b.target.Close())
	require.Error(t, <-done)
}
