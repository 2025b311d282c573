package web

import (
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
)

// MaxHeaderBytes is the maximum size of a request's header, in bytes.
const MaxHeaderBytes = 16 << 10

// HTTP returns the HTTP server for a handler. It has neither a ReadTimeout nor a WriteTimeout,
// because these would end slow calls. Instead, readBody sets a deadline for each body, and package
// clientconn sets a deadline for each write.
func (s *Server) HTTP(handler http.Handler, idle time.Duration) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: clientconn.HeaderWait,
		IdleTimeout:       idle,
		MaxHeaderBytes:    MaxHeaderBytes,
		ConnContext:       WithConn,
		ConnState:         s.Gate.ConnState,
		// Disable HTTP/2, because a client could open and reset streams at no cost, while each of
		// them would cost the proxy a call. HTTP/1.1 connections are also cheaper for small calls.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     DebugLog(s.Gate.Log),
	}
}

// DebugLog returns a log for the messages of net/http.
func DebugLog(to *slog.Logger) *log.Logger {
	return slog.NewLogLogger(debugHandler{to.Handler()}, slog.LevelDebug)
}

// debugHandler logs net/http's messages about clients, such as failed handshakes, at level debug
// and without net/http's prefix.
type debugHandler struct{ slog.Handler }

func (q debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Message = strings.TrimPrefix(r.Message, "http: ")
	return q.Handler.Handle(ctx, r)
}
