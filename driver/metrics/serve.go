package metrics

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Serve serves /metrics at an address until the returned Closer is closed. Callers must present the
// token in tokenFile as a bearer token. Without a tokenFile, the address must be a loopback
// address, which only the pod itself can reach, because metrics reveal the names and load of
// targets.
func (m *Metrics) Serve(address, tokenFile string, log *slog.Logger) (io.Closer, error) {
	handler := m.handler
	if tokenFile == "" {
		if !loopback(address) {
			return nil, fmt.Errorf("%q is open to every pod: specify --metrics-token-file, or an address that only this pod can reach, such as 127.0.0.1:9810", address)
		}
	} else {
		if _, err := readToken(tokenFile); err != nil {
			return nil, fmt.Errorf("--metrics-token-file: %w", err)
		}
		handler = authenticated(handler, tokenFile, log)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", handler)
	server := &http.Server{
		Handler: paths, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving metrics", "address", l.Addr().String())
	go func() { _ = server.Serve(l) }() // until the server is closed
	return server, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// readToken reads the token from its file. It is called for each request, because secrets are
// rotated.
func readToken(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, fmt.Errorf("%s: %w: write the token to it", file, errNoToken)
	}
	return text, nil
}

var errNoToken = errors.New("the file contains no token")

// authenticated serves only callers that present the token.
func authenticated(next http.Handler, file string, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := readToken(file)
		if err != nil {
			log.ErrorContext(r.Context(), "metrics are not served: the token cannot be read", "error", err)
			http.Error(w, "the metrics token cannot be read: see the log", http.StatusServiceUnavailable)
			return
		}
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		a, b := sha256.Sum256([]byte(given)), sha256.Sum256(want)
		if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "authentication failed: send the token in --metrics-token-file as a bearer token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
