package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Listen opens the address of the configuration.
func (s *Server) Listen() (net.Listener, error) {
	l, err := net.Listen("tcp", s.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.config.Listen, err)
	}
	return l, nil
}

// Serve answers on l until ctx ends. Then it stops accepting, lets the calls
// under way finish within the drain bound while new ones on kept connections
// are told to go elsewhere, and ends the connections to the target.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	scheme := "http"
	server := s.httpServer()
	l = s.clients.Listener(l)
	if !s.config.TLS.InsecurePlaintext {
		scheme = "https"
		l = tls.NewListener(l, s.serverTLS())
	}
	s.log.Info("serving", "url", fmt.Sprintf("%s://%s/", scheme, l.Addr()), "socket", s.config.Target.Socket)

	scraping, endScrapes := context.WithCancel(context.Background()) // as long as calls are served
	var scrapes sync.WaitGroup
	scrapes.Go(func() { s.serveScrapes(scraping) })
	defer scrapes.Wait()
	defer endScrapes()
	defer s.auditLog.Flush()
	go s.target.Watch()
	recovering, endRecovery := context.WithCancel(context.Background())
	var recovery sync.WaitGroup
	recovery.Go(func() { s.quiescer.Run(recovering) })
	defer recovery.Wait()
	defer endRecovery()
	s.startSaving()
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(l) }()
	go func() { ended <- server.Serve(s.inside) }()
	select {
	case err := <-ended:
		s.stopSaving()
		return errors.Join(fmt.Errorf("serve: %w", err), s.target.Close())
	case <-ctx.Done():
	}
	// Who comes from now on waits in systemd's socket, if it is that, for the next
	// process.
	_ = l.Close()
	_ = s.inside.Close()
	for range cap(ended) {
		<-ended // so that what was accepted is known
	}
	return s.stop(server)
}

// stop ends what is under way. The listeners are closed.
func (s *Server) stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.config.Limits.Drain))
	defer cancel()
	drained := s.calls.drain()
	s.log.Info("stopping", "calls", s.target.InFlight(), "bound", time.Duration(s.config.Limits.Drain).String())
	select {
	case <-drained:
	case <-ctx.Done():
		s.log.Warn("stopped with calls under way", "calls", s.target.InFlight())
	}
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		err = nil // the listener, above
	}
	s.stopSaving()
	return errors.Join(err, s.target.Close())
}
