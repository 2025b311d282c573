package metrics

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve serves /metrics on an address, until what it returns is closed.
func (m *Metrics) Serve(address string, log *slog.Logger) (io.Closer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", m.handler)
	server := &http.Server{
		Handler: paths, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving metrics", "address", l.Addr().String())
	go func() { _ = server.Serve(l) }() // until it is closed
	return server, nil
}
