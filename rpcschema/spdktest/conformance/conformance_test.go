package conformance_test

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/conformance"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// TestSimulated runs the suite on the simulated target, straight through its socket.
func TestSimulated(t *testing.T) {
	for name, opts := range map[string]spdktest.Options{
		"v24.01":         {Release: rpcschema.MustRelease("v24.01")},
		"v26.05":         {Release: rpcschema.MustRelease("v26.05")},
		"v26.09":         {Release: rpcschema.MustRelease("v26.09")},
		"v26.05-data":    {Release: rpcschema.MustRelease("v26.05"), DataDir: t.TempDir()},
		"v26.05-startup": {Release: rpcschema.MustRelease("v26.05"), WaitForRPC: true},
		"v24.01-polled":  {Release: rpcschema.MustRelease("v24.01"), Poll: 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, err := spdktest.Start(opts)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, target.Close()) })
			straight(t, target.Socket(), t.TempDir())
		})
	}
}

// TestReal runs the suite on the target that SPDK_SOCK names, which must be on
// this host and may be used for nothing else meanwhile.
func TestReal(t *testing.T) {
	straight(t, realtarget.Socket(t), cmp.Or(filepath.Dir(os.Getenv("SPDK_AIO_FILE")), os.TempDir()))
}

func straight(t *testing.T, socket, dir string) {
	caller := spdkrpc.NewSocket(socket)
	t.Cleanup(func() { _ = caller.Close() })
	conformance.Run(t, conformance.Env{Caller: caller, Dir: dir, Socket: socket})
}
