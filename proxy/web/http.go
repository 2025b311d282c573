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

// MaxHeaderBytes is the maximum size of a request's header.
const MaxHeaderBytes = 16 << 10

// HTTP returns the HTTP server around the handler. It has no ReadTimeout or WriteTimeout, because
// these would also end slow calls. Instead, readBody sets a deadline for each body, and package
// clientconn sets one for each write.
func (s *Server) HTTP(handler http.Handler, idle time.Duration) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: clientconn.HeaderWait,
		IdleTimeout:       idle,
		MaxHeaderBytes:    MaxHeaderBytes,
		ConnContext:       WithConn,
		ConnState:         s.Gate.ConnState,
		// Disable HTTP/2, because a client could open and reset streams at no cost, while each of
		// them costs the proxy a call. HTTP/1.1 connections are also cheaper for small calls.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     DebugLog(s.Gate.Log),
	}
}

// DebugLog returns the log for net/http's messages.
func DebugLog(to *slog.Logger) *log.Logger {
	return slog.NewLogLogger(debugHandler{to.Handler()}, slog.LevelDebug)
}

// debugHandler logs net/http's messages about clients, such as failed handshakes, at the level
// debug and without the prefix of that package.
type debugHandler struct{ slog.Handler }

func (q debugHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Message = strings.TrimPrefix(r.Message, "http: ")
	return q.Handler.Handle(ctx, r)
}
