package proxy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// metricsMethod is the method behind GET /metrics: users who may call it may scrape.
const metricsMethod = "spdkgate_get_metrics"

// serveMetrics answers GET /metrics with the method's result as plain text. A refusal is a
// JSON-RPC error.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	s.serveGet(w, r, metricsMethod, func(result json.RawMessage) {
		var text string
		if err := json.Unmarshal(result, &text); err != nil {
			panic(err) // answerMetrics made it
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = io.WriteString(w, text)
	})
}

// answerMetrics answers metricsMethod, which policy has allowed unless its parameters decide.
// Tenants are refused, because each series names a user or is a sum over all users.
func (s *Server) answerMetrics(ctx context.Context, now *settings, c *call, method *rpcschema.Method, decision policy.Decision) (json.RawMessage, error) {
	if err := s.admitToMetrics(now, c, method, decision, "the metrics are about all users, so tenants may not read them"); err != nil {
		return nil, err
	}
	give, err := s.target.AcquireSlot(ctx, c.in.sender.user)
	if err != nil {
		return nil, err
	}
	defer give()
	text, err := s.metrics.Text()
	if err != nil {
		return nil, err
	}
	return jsonrpc.Marshal(text)
}

// admitToMetrics takes a call for metrics through the stages after that of its method: policy, whose decision may depend on the
// parameters, and tenancy, which refuses all tenants for a reason.
func (s *Server) admitToMetrics(now *settings, c *call, method *rpcschema.Method, decision policy.Decision, reason string) error {
	if _, err := s.decideParams(c, decision, method, c.asked.request.Params, rpcschema.Release{}); err != nil {
		return err
	}
	scope := now.tenancy.Of(c.in.sender.user)
	if scope == nil {
		return nil
	}
	err := &tenancy.Refusal{Tenant: scope.Name, Reason: reason}
	c.noteAdmission(scope, nil, err)
	return err
}
