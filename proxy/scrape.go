package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

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
	for logged := false; ; logged = true {
		l, err := net.Listen("tcp", address)
		if err == nil {
			s.serveScrapesOn(ctx, l)
			return
		}
		if !logged {
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
		Handler: s.answerPanics(paths), ReadTimeout: headerWait, WriteTimeout: writeWait, IdleTimeout: time.Duration(s.config.Limits.Idle), MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(debugHandler{s.log.Handler()}, slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	s.log.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	_ = server.Serve(l) // until it is closed
}
