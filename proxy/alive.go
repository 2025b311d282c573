package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// Alive checks whether this process still serves requests. It passes a request for /healthz to the
// handler, which acquires the locks that connections and calls need. Alive uses neither the target
// nor the network, so an unreachable target or a flood of clients does not make the service look
// dead.
//
// Alive blocks until [Server.Serve] starts. It returns an error if Serve no longer accepts
// connections, or if ctx is done first.
func (s *Server) Alive(ctx context.Context) error {
	select {
	case <-s.began:
	case <-ctx.Done():
		return fmt.Errorf("no connection is accepted yet: %w", ctx.Err())
	}
	select {
	case <-s.ended:
		return fmt.Errorf("no connection is accepted: %w", net.ErrClosed)
	default:
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return err
	}
	answered := make(chan int, 1)
	go func() {
		w := statusWriter{status: http.StatusOK}
		s.handler.ServeHTTP(&w, r)
		answered <- w.status
	}()
	select {
	case <-ctx.Done():
		return fmt.Errorf("the handler does not respond: %w", ctx.Err())
	case status := <-answered:
		if status != http.StatusOK {
			return fmt.Errorf("the handler responds to /healthz with status %d", status)
		}
		return nil
	}
}

// A statusWriter discards a response except for its status.
type statusWriter struct {
	status int
	header http.Header
}

func (w *statusWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *statusWriter) WriteHeader(status int) { w.status = status }

func (w *statusWriter) Write(p []byte) (int, error) { return len(p), nil }
