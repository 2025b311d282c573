package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// scrapeRetry is the time between two attempts to listen at the address for scrapes.
const scrapeRetry = 2 * time.Second

// serveScrapes serves /metrics and /metrics/target on metrics.listen, if the configuration has that, until ctx
// ends. The address is a loopback address, and every local user could take it first. That
// must not prevent calls: it is logged, and the address is tried until it is free.
func (s *Server) serveScrapes(ctx context.Context) {
	address := s.config.Metrics.Listen
	if address == "" {
		return
	}
	for logged := false; ; logged = true {
		l, err := net.Listen("tcp", address)
		if err == nil {
			s.serveScrapesOn(ctx, l)
			return
		}
		if !logged {
			s.log.Error("cannot serve metrics", "listen", address, "error", err,
				"do", "stop the process that listens there, or change the port in metrics.listen")
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
	paths.HandleFunc("GET /metrics/target", s.scrapeTargetMetrics)
	server := &http.Server{
		Handler: s.answerPanics(paths), ReadTimeout: headerWait, WriteTimeout: writeWait, IdleTimeout: time.Duration(s.config.Limits.Idle), MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(debugHandler{s.log.Handler()}, slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	s.log.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	_ = server.Serve(l) // until it is closed
}
