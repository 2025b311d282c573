package main

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// start runs spdk-sim in this process and returns a client for its socket.
func start(t *testing.T, args ...string) *spdkrpc.Socket {
	socket := filepath.Join(t.TempDir(), "spdk.sock")
	cmd := command(io.Discard)
	cmd.SetArgs(append([]string{"--socket", socket}, args...))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		assert.NoFileExists(t, socket)
	})
	untilUp(t, socket)
	caller := spdkrpc.NewSocket(socket)
	t.Cleanup(func() { _ = caller.Close() })
	return caller
}

func untilUp(t *testing.T, socket string) {
	require.Eventually(t, func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestRequestedReleaseIsSimulated(t *testing.T) {
	caller := start(t, "--spdk-version", "v24.01")
	release, err := spdkrpc.NewClient(caller).Release(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "v24.01", release.String())
}

func TestSimulatorRestartsAfterACrash(t *testing.T) {
	// The call must change something, because the client would repeat other calls, perhaps after
	// the restart.
	caller := start(t, "--fault", "bdev_malloc_create:crash,executed", "--restart-after", "1ms")
	err := caller.Call(context.Background(), "bdev_malloc_create", map[string]any{"num_blocks": 1024, "block_size": 4096}, nil)
	require.Error(t, err)
	require.Eventually(t, func() bool {
		err := caller.Call(context.Background(), "spdk_get_version", nil, nil)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestLvstoresAreKeptInTheDataDirectory(t *testing.T) {
	data := t.TempDir()
	for range 2 { // each round starts and stops a target, and keeps the directory
		t.Run("run", func(t *testing.T) {
			caller := start(t, "--data-dir", data)
			err := caller.Call(context.Background(), "spdk_get_version", nil, nil)
			require.NoError(t, err)
		})
	}
	assert.FileExists(t, filepath.Join(data, spdktest.MarkerFile))
}

func TestFaultSpecificationsAreParsed(t *testing.T) {
	for text, want := range map[string]spdktest.Fault{
		"bdev_get_bdevs:hang":                         {Method: "bdev_get_bdevs", Do: spdktest.Hang},
		"bdev_lvol_*:close,executed,skip=3,times=2":   {Method: "bdev_lvol_*", Do: spdktest.Close, Executed: true, Skip: 3, Times: 2},
		"*:delay,delay=2s,times=all":                  {Method: "*", Delay: 2 * time.Second, Times: -1},
		"bdev_lvol_create:fail=-28":                   {Method: "bdev_lvol_create", Do: spdktest.Fail, Error: jsonrpc.Errorf(-28, "simulated fault")},
		"bdev_lvol_create:fail,delay=100ms,times=all": {Method: "bdev_lvol_create", Do: spdktest.Fail, Delay: 100 * time.Millisecond, Times: -1},
	} {
		got, err := parseFault(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, says := range map[string]string{
		"bdev_get_bdevs":              "METHOD:WHAT",
		"no_such_method:hang":         "no method matches",
		"bdev_get_bdevs:explode":      "use one of close, crash, delay, fail, hang",
		"bdev_get_bdevs:hang=1":       "use one of",
		"bdev_get_bdevs:fail=ENODEV":  "as a number",
		"bdev_get_bdevs:delay":        "needs a duration",
		"bdev_get_bdevs:hang,skip=-1": "skip=3",
		"bdev_get_bdevs:hang,times=0": "times=2",
		"bdev_get_bdevs:hang,delay=1": "delay=200ms",
		"bdev_get_bdevs:hang,often":   "use delay=",
	} {
		_, err := parseFault(text)
		require.ErrorContains(t, err, says, text)
	}
}

func TestUnsupportedFlagsAreRejected(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--spdk-version", "26"}, "--spdk-version"},
		{[]string{"--fault", "x"}, `--fault "x"`},
		{[]string{"--config", "/nonexistent/config.json"}, "/nonexistent/config.json"},
	} {
		cmd := command(io.Discard)
		cmd.SetArgs(append([]string{"--socket", filepath.Join(t.TempDir(), "s")}, c.args...))
		ctx, stop := context.WithCancel(context.Background())
		stop() // ends the simulation immediately if it starts by mistake
		require.ErrorContains(t, cmd.ExecuteContext(ctx), c.says)
	}
}
