package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// metricsMethod is what GET /metrics stands for: who may call it, may scrape.
const metricsMethod = "spdkgate_get_metrics"

// serveMetrics answers GET /metrics with the method's result as plain text.
// Refusals are JSON-RPC's.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	s.serveGet(w, r, metricsMethod, func(result json.RawMessage) {
		var text string
		if err := json.Unmarshal(result, &text); err != nil {
			panic(err) // tellMetrics made it
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		_, _ = io.WriteString(w, text)
	})
}

// tellMetrics answers metricsMethod, which policy has let pass so far. Each series
// names a user or sums all of them up, so that no tenant may see any.
func (s *Server) tellMetrics(ctx context.Context, now *settings, c *call, method *rpcschema.Method, decision policy.Decision) (json.RawMessage, error) {
	if err := s.schema.ValidateParams(method.Name, c.request.Params, rpcschema.Release{}); err != nil {
		return nil, err
	}
	decision = decision.Given(c.request.Params)
	c.decided(decision)
	if !decision.Allowed {
		return nil, errDeniedParams
	}
	if scope := now.tenancy.Of(c.user); scope != nil {
		err := &tenancy.Refusal{Tenant: scope.Name, Reason: "metrics tell of all users, and are not for tenants"}
		c.admitted(scope, nil, err)
		return nil, err
	}
	give, err := s.target.Turn(ctx, c.user)
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

// scrapeRetry is how soon the address for scrapes is tried again.
const scrapeRetry = 2 * time.Second

// serveScrapes serves /metrics on an address of its own, if the configuration
// has one, until ctx ends. Only this host reaches it; but everybody there could
// take the address first, which must not keep calls from being served: it is
// logged, and tried until it is free.
func (s *Server) serveScrapes(ctx context.Context) {
	address := s.config.Metrics.Listen
	if address == "" {
		return
	}
	for told := false; ; told = true {
		l, err := net.Listen("tcp", address)
		if err == nil {
			s.serveScrapesOn(ctx, l)
			return
		}
		if !told {
			s.log.Error("metrics are not served", "listen", address, "error", err,
				"do", "end what listens there, or give metrics.listen another port")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(scrapeRetry):
		}
	}
}

func (s *Server) serveScrapesOn(ctx context.Context, l net.Listener) {
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", s.metrics.Handler())
	server := &http.Server{
		Handler: s.contain(paths), ReadTimeout: headerWait, WriteTimeout: writeWait, IdleTimeout: time.Duration(s.config.Limits.Idle), MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(quiet{s.log.Handler()}, slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	s.log.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	_ = server.Serve(l) // until it is closed
}
