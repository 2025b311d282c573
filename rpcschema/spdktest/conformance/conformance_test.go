package conformance_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/conformance"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// TestSimulatedTargetConforms runs the suite on the simulated target, directly through its socket.
func TestSimulatedTargetConforms(t *testing.T) {
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
			assert.Empty(t, straight(t, target.Socket(), t.TempDir()).Skipped, "the simulation has all methods")
		})
	}
}

// without is a Caller for a target that was built without one method.
type without struct {
	spdkrpc.Caller
	method string
}

func (w without) Call(ctx context.Context, method string, params, result any) error {
	if method == w.method {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.MethodNotFound, Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
	}
	err := w.Caller.Call(ctx, method, params, result)
	raw, ok := result.(*json.RawMessage)
	if err != nil || !ok || method != "rpc_get_methods" {
		return err
	}
	var names []string
	if err := json.Unmarshal(*raw, &names); err != nil {
		return err
	}
	*raw, err = json.Marshal(slices.DeleteFunc(names, func(name string) bool { return name == w.method }))
	return err
}

// A group is skipped, and listed in the Summary, if the target was built without a method that the
// group needs.
func TestGroupsWithMissingMethodsAreSkipped(t *testing.T) {
	target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease("v26.05")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	socket := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { _ = socket.Close() })
	summary := conformance.Run(t, conformance.Env{Caller: without{socket, "bdev_crypto_create"}, Dir: t.TempDir()})
	assert.Equal(t, map[string][]string{"crypto": {"bdev_crypto_create"}}, summary.Skipped)
	assert.Empty(t, summary.Failed)
	assert.Greater(t, len(summary.Passed), 25)
}

// TestRealTargetConforms runs the suite on the target named by SPDK_SOCK. The target must be on
// this host, and nothing else may use it during the test.
func TestRealTargetConforms(t *testing.T) {
	straight(t, realtarget.Socket(t), t.TempDir())
}

func straight(t *testing.T, socket, dir string) conformance.Summary {
	caller := spdkrpc.NewSocket(socket)
	t.Cleanup(func() { _ = caller.Close() })
	return conformance.Run(t, conformance.Env{Caller: caller, Dir: dir, Socket: socket})
}
