package controller

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type callerFunc func(ctx context.Context) error

func (f callerFunc) Call(ctx context.Context, _ string, _, _ any) error { return f(ctx) }

func TestCallsToTargetsAreCounted(t *testing.T) {
	m := metrics.New("v1")
	var answer error
	c := counted{Caller: callerFunc(func(context.Context) error { return answer }), target: "a", metrics: m}
	line := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, step := range []struct {
		ctx     context.Context
		answer  error
		outcome string
		up      string
	}{
		{t.Context(), nil, "ok", "1"},
		{t.Context(), &spdkrpc.Error{Kind: spdkrpc.Unreachable}, "unreachable", "0"},
		{t.Context(), &spdkrpc.Error{Kind: spdkrpc.NoSuchDevice, Code: -19}, "no_such_object", "1"},
		{gone, &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}, "outcome_unknown", "1"},
		{t.Context(), &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}, "outcome_unknown", "0"},
	} {
		answer = step.answer
		require.ErrorIs(t, c.Call(step.ctx, "bdev_get_bdevs", nil, nil), answer)
		assert.Contains(t, line(), `spdk_csi_target_calls_total{method="bdev_get_bdevs",outcome="`+step.outcome+`",target="a"}`)
		assert.Contains(t, line(), "\nspdk_csi_target_up{target=\"a\"} "+step.up+"\n", step.outcome)
	}
}
