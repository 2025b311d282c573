package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// metricsMethod is what GET /metrics is to policy and log.
const metricsMethod = "spdkgate_metrics"

// serveMetrics answers GET /metrics to whoever may call metricsMethod. The answer
// is not JSON-RPC's, refusals are.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	c := s.asked(w, r, metricsMethod)
	c.end(s.perform(r.Context(), s.settings.Load(), c))
	s.audit(c)
	if c.err != nil {
		c.exchange.reply(w)
		return
	}
	s.metrics.Handler().ServeHTTP(w, r)
}

// serveScrapes serves /metrics on an address of its own, if the configuration
// has one, until the server that it returns is closed. Only this host reaches it.
func (s *Server) serveScrapes() (io.Closer, error) {
	address := s.config.Metrics.Listen
	if address == "" {
		return io.NopCloser(nil), nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", s.metrics.Handler())
	server := &http.Server{
		Handler: paths, ReadTimeout: headerWait, WriteTimeout: writeWait, IdleTimeout: time.Duration(s.config.Limits.Idle), MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(quiet{s.log.Handler()}, slog.LevelDebug),
	}
	s.log.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	go func() { _ = server.Serve(l) }() // until it is closed
	return server, nil
}
