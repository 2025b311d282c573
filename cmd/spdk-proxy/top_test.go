package main

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

type callerFunc func(method string, result any) error

func (f callerFunc) Call(_ context.Context, method string, _, result any) error {
	return f(method, result)
}
func (callerFunc) Close() error { return nil }

// The I/O history is not read again until it is too old. It is empty while the proxy refuses to
// return it.
func TestIOHistoryIsReadOncePerInterval(t *testing.T) {
	calls, refused := 0, error(nil)
	r := &remote{timeout: time.Minute, caller: callerFunc(func(method string, result any) error {
		calls++
		assert.Equal(t, "spdkgate_get_io_history", method)
		*result.(*json.RawMessage) = json.RawMessage(`[{"name":"1","alias":"lvs0/v","histogram":"on","samples":[{"latency_p50_us":1,"latency_p99_us":2}]}]`)
		return refused
	})}
	var h ioHistory
	for range 2 {
		bdevs := h.read(t.Context(), r)
		if assert.Len(t, bdevs, 1) {
			assert.InDelta(t, 2, *bdevs[0].Samples[0].LatencyP99US, 0)
		}
	}
	assert.Equal(t, 1, calls)
	h.taken, refused = h.taken.Add(-historyAge), errors.New("the user may not read it")
	assert.Empty(t, h.read(t.Context(), r))
	assert.Equal(t, 2, calls)
}
