package quiesce

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A garbler replaces a method's results with values that violate the schema.
type garbler struct {
	spdkrpc.Caller
	method string
}

func (g garbler) Call(ctx context.Context, method string, params, result any) error {
	if method != g.method {
		return g.Caller.Call(ctx, method, params, result)
	}
	var raw json.RawMessage
	if err := g.Caller.Call(ctx, method, params, &raw); err != nil {
		return err
	}
	return &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Message: "the result does not match the schema"}
}

// A malformed response does not mean that SPDK refused the call. If a query before the snapshot
// receives such a response, nothing has been executed. If the call that takes the snapshot receives
// one, the snapshot may exist.
func TestMalformedResponsesAreNotRefusals(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	for _, method := range []string{"bdev_get_bdevs", "iscsi_get_target_nodes", snapshotMethod} {
		b.q.opts.Connect = func(ctx context.Context, at Place) (*Target, error) {
			target, err := connect(ctx, at)
			if err == nil {
				target.Caller = garbler{target.Caller, method}
			}
			return target, err
		}
		_, err := b.take(want("v0", "s-"+method))
		if method == snapshotMethod {
			require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
			assert.True(t, b.exists("s-"+method))
			continue
		}
		var unread *AnswerError
		require.ErrorAs(t, err, &unread, method)
		assert.Equal(t, method, unread.Method)
		assert.False(t, b.exists("s-"+method))
	}
}

// A busyCaller refuses all calls until some time, like an older release that is completing another
// call for the same subsystem.
type busyCaller struct{ until time.Time }

func (c busyCaller) Call(_ context.Context, method string, _, _ any) error {
	if time.Now().Before(c.until) {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Message: "Internal error"}
	}
	return nil
}

func TestCallsForABusySubsystemAreRetriedLater(t *testing.T) {
	for method, succeeds := range map[string]bool{"nvmf_subsystem_get_listeners": true, snapshotMethod: false} {
		synctest.Test(t, func(t *testing.T) {
			c := retryingCaller{Caller: busyCaller{time.Now().Add(10 * time.Millisecond)}}
			assert.Equal(t, succeeds, c.Call(t.Context(), method, nil, nil) == nil, method)
		})
	}
}
