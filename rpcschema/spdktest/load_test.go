package spdktest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// saved returns the configuration in the form that SPDK's save_config writes.
func saved(t *testing.T, c *spdkrpc.Client) string {
	subsystems, err := c.FrameworkGetSubsystems(t.Context())
	require.NoError(t, err)
	type part struct {
		Subsystem string                         `json:"subsystem"`
		Config    []spdkrpc.FrameworkConfigEntry `json:"config"`
	}
	file := map[string][]part{}
	for _, s := range subsystems {
		config, err := c.FrameworkGetConfig(t.Context(), spdkrpc.FrameworkGetConfigParams{Name: s.Subsystem})
		require.NoError(t, err)
		file["subsystems"] = append(file["subsystems"], part{s.Subsystem, config})
	}
	text, err := json.Marshal(file)
	require.NoError(t, err)
	return string(text)
}

func TestConfigFileIsLoaded(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			disk := filepath.Join(t.TempDir(), "disk")
			require.NoError(t, os.WriteFile(disk, nil, 0o600))
			require.NoError(t, os.Truncate(disk, 64<<20))
			target, err := Start(Options{Release: rpcschema.MustRelease(release), ConfigFile: path, DataDir: t.TempDir()})
			require.NoError(t, err, "without a file, the target starts empty")
			t.Cleanup(func() { _ = target.Close() })
			// A client that is connected to a crashed target may not have noticed the crash.
			connect := func() *spdkrpc.Client {
				socket := spdkrpc.NewSocket(target.Socket())
				t.Cleanup(func() { _ = socket.Close() })
				return spdkrpc.NewClient(socket)
			}
			c := connect()
			ctx := t.Context()
			_, err = c.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: disk, BlockSize: new(uint32(4096))})
			require.NoError(t, err)
			_, err = c.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"})
			require.NoError(t, err)
			volume, err := c.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvsName: new("lvs0"), LvolName: "v", SizeInMiB: 8})
			require.NoError(t, err)
			require.NoError(t, c.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"}))
			require.NoError(t, c.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: "nqn.2016-06.io.spdk:a", SerialNumber: new("S")}))
			_, err = c.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: "nqn.2016-06.io.spdk:a", Namespace: spdkrpc.NVMfNamespaceParams{BdevName: volume}})
			require.NoError(t, err)
			before, err := c.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
			require.NoError(t, err)
			text := saved(t, c)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))

			target.Crash()
			require.NoError(t, target.Restart())
			c = connect()
			after, err := c.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
			require.NoError(t, err)
			assert.Equal(t, before, after)
			assert.JSONEq(t, text, saved(t, c))

			require.NoError(t, os.Remove(disk))
			target.Crash()
			require.ErrorContains(t, target.Restart(), "bdev_aio_create", "a failing call makes the start fail")
			target.opts.IgnoreInitErrors = true
			require.NoError(t, target.Restart())
			c = connect()
			after, err = c.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
			require.NoError(t, err)
			assert.Len(t, after, 2, "bdevs that do not need the disk exist")

			require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 10), 0o600))
			require.Error(t, target.Restart(), "the target cannot start with an invalid file")
		})
	}
}
