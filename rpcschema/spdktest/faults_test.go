package spdktest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var newNull = p{"name": "n", "num_blocks": 10, "block_size": 512}

// TestInjectedFaultsReturnTheirErrors checks, for each kind of fault, whether the call is executed
// and which error its caller gets.
func TestInjectedFaultsReturnTheirErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fault    Fault
		executed bool
		kind     spdkrpc.Kind // "" means success
		code     int
	}{
		"delay":               {Fault{Delay: time.Millisecond}, true, "", 0},
		"hang":                {Fault{Do: Hang}, false, spdkrpc.OutcomeUnknown, 0},
		"hang, executed":      {Fault{Do: Hang, Executed: true}, true, spdkrpc.OutcomeUnknown, 0},
		"close":               {Fault{Do: Close}, false, spdkrpc.OutcomeUnknown, 0},
		"close, executed":     {Fault{Do: Close, Executed: true}, true, spdkrpc.OutcomeUnknown, 0},
		"fail":                {Fault{Do: Fail}, false, spdkrpc.Failed, jsonrpc.CodeInternalError},
		"fail, executed":      {Fault{Do: Fail, Executed: true}, true, spdkrpc.Failed, jsonrpc.CodeInternalError},
		"fail with an error":  {Fault{Do: Fail, Error: jsonrpc.Errorf(-28, "No space left on device")}, false, spdkrpc.NoSpace, -28},
		"another method":      {Fault{Method: "bdev_malloc_create", Do: Fail}, true, "", 0},
		"by its name":         {Fault{Method: "bdev_null_create", Do: Fail}, false, spdkrpc.Failed, jsonrpc.CodeInternalError},
		"by a glob":           {Fault{Method: "bdev_*_create", Do: Fail}, false, spdkrpc.Failed, jsonrpc.CodeInternalError},
		"by a glob of others": {Fault{Method: "nvmf_*", Do: Fail}, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, Options{})
			b.target.Inject(c.fault)
			limit := 20 * time.Second
			if c.fault.Do == Hang {
				limit = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := b.client.Call(ctx, "bdev_null_create", newNull, nil)
			b.target.ClearFaults()
			if c.kind == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.kind)
				var e *spdkrpc.Error
				require.ErrorAs(t, err, &e)
				assert.Equal(t, c.code, e.Code)
			}
			if c.executed {
				assert.Equal(t, []string{"n"}, b.names("bdev_get_bdevs", "name"))
			} else {
				assert.Empty(t, b.names("bdev_get_bdevs", "name"))
			}
		})
	}
}

func TestFaultsAreCounted(t *testing.T) {
	b := start(t, Options{})
	failed := func() (failed []bool) {
		for range 6 {
			failed = append(failed, b.call("spdk_get_version", nil, nil) != nil)
		}
		return failed
	}
	b.target.Inject(Fault{Skip: 2, Do: Fail})
	assert.Equal(t, []bool{false, false, true, false, false, false}, failed())
	b.target.Inject(Fault{Skip: 1, Times: 3, Do: Fail})
	assert.Equal(t, []bool{false, true, true, true, false, false}, failed())
	b.target.Inject(Fault{Skip: 3, Times: -1, Do: Fail})
	assert.Equal(t, []bool{false, false, false, true, true, true}, failed())
	assert.Equal(t, []bool{true, true, true, true, true, true}, failed())
	b.target.ClearFaults()
	assert.Equal(t, []bool{false, false, false, false, false, false}, failed())
	b.target.Inject(Fault{Times: 1, Do: Fail, Error: jsonrpc.Errorf(-1, "first")})
	b.target.Inject(Fault{Times: 1, Do: Fail, Error: jsonrpc.Errorf(-2, "second")})
	assert.Equal(t, -1, b.code("spdk_get_version", nil))
	assert.Equal(t, -2, b.code("spdk_get_version", nil))
	b.ok("spdk_get_version", nil)
}

// TestDelayedCallDoesNotBlockOthers checks that a delayed call does not block other calls on the
// same connection.
func TestDelayedCallDoesNotBlockOthers(t *testing.T) {
	b := start(t, Options{})
	b.target.Inject(Fault{Delay: 200 * time.Millisecond})
	c, err := net.Dial("unix", b.target.Socket())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, `{"id":1,"method":"spdk_get_version"}{"id":2,"method":"spdk_get_version"}`)
	require.NoError(t, err)
	r := bufio.NewReader(c)
	for _, id := range []string{`"id":2`, `"id":1`} {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		assert.Contains(t, line, id)
	}
}

// isDown waits until calls fail because the target is down. A connection that the crash has not
// closed yet may accept one more call.
func (b *bench) isDown() {
	b.Helper()
	err := b.call("spdk_get_version", nil, nil)
	for errors.Is(err, spdkrpc.OutcomeUnknown) {
		err = b.call("spdk_get_version", nil, nil)
	}
	require.ErrorIs(b, err, spdkrpc.Unreachable)
}

// TestInjectedCrashesKillTheTarget crashes the target before or after it executes a call.
func TestInjectedCrashesKillTheTarget(t *testing.T) {
	for name, executed := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			b := start(t, Options{})
			path := b.store()
			b.lvol("kept", 8)
			b.target.Inject(Fault{Method: "bdev_lvol_create", Skip: 1, Do: Crash, Executed: executed})
			b.lvol("passed", 8)
			require.ErrorIs(t, b.call("bdev_lvol_create", p{"lvs_name": "lvs", "lvol_name": "x", "size_in_mib": 8}, nil), spdkrpc.OutcomeUnknown)
			b.isDown()
			b.restart()
			b.aio(path)
			want := []string{"kept", "passed"}
			if executed {
				want = append(want, "x")
			}
			assert.Equal(t, want, b.names("bdev_lvol_get_lvols", "name"))
		})
	}
}

func TestCallsThatCrashSPDKCrashTheSimulation(t *testing.T) {
	b := start(t, Options{})
	portals := []p{{"host": "127.0.0.1", "port": "3260"}}
	b.ok("iscsi_create_portal_group", p{"tag": 1, "portals": portals})
	require.ErrorIs(t, b.call("iscsi_create_portal_group", p{"tag": 2, "portals": portals}, nil), spdkrpc.OutcomeUnknown)
	b.restart()
	assert.Empty(t, b.names("iscsi_get_portal_groups", "tag"))

	b.store()
	b.ok("bdev_malloc_create", p{"name": "m", "num_blocks": 8192, "block_size": 4096})
	b.text("bdev_lvol_clone_bdev", p{"bdev": "m", "lvs_name": "lvs", "clone_name": "c"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.client.Call(ctx, "bdev_malloc_delete", p{"name": "m"}, nil), spdkrpc.OutcomeUnknown, "is not answered")
	assert.Equal(t, -19, b.code("bdev_get_bdevs", p{"name": "m"}), "but done")
	require.ErrorIs(t, b.call("bdev_lvol_delete", p{"name": "lvs/c"}, nil), spdkrpc.OutcomeUnknown)
	b.isDown()
}
