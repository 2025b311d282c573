package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/stream"
)

// Listen listens at the configured address. For an IPv4 address, it listens only on IPv4.
func (s *Server) Listen() (net.Listener, error) {
	network := "tcp"
	if a, err := netip.ParseAddrPort(s.config.Listen); err == nil && a.Addr().Is4() {
		network = "tcp4" // with tcp, 0.0.0.0 would also mean all IPv6 addresses
	}
	l, err := net.Listen(network, s.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.config.Listen, err)
	}
	return l, nil
}

// Serve serves HTTP requests on l, and messages in SPDK's own protocol on local, which must be UNIX
// sockets, until ctx is done. It then closes the listeners, and waits up to limits.drain for
// running calls. For a short time, it still serves new calls on open connections; after that, it
// refuses them. Finally, it closes the connections to the target. Serve must be called at most
// once.
func (s *Server) Serve(ctx context.Context, l net.Listener, local ...net.Listener) error {
	scheme := "http"
	server := s.web.HTTP(s.handler, time.Duration(s.config.Limits.Idle))
	l = s.clients.Listener(l)
	if !s.config.TLS.InsecurePlaintext {
		scheme = "https"
		l = tls.NewListener(l, s.serverTLS())
	}
	s.log.Info("serving", "url", fmt.Sprintf("%s://%s/", scheme, l.Addr()), "socket", s.config.Target.Socket)
	s.claim.take()
	defer s.claim.drop()

	scraping, endScrapes := context.WithCancel(context.Background()) // canceled when no more calls are served
	var scrapes sync.WaitGroup
	scrapes.Go(func() { s.observe.ServeScrapes(scraping, s.config, s.web.AnswerPanics) })
	defer scrapes.Wait()
	defer endScrapes()
	defer s.closeAuditLog()
	go s.target.Watch()
	recovering, endRecovery := context.WithCancel(context.Background())
	var recovery sync.WaitGroup
	recovery.Go(func() { s.execute.RecoverFrozen(recovering) })
	defer recovery.Wait()
	defer endRecovery()
	watching, endWatch := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { s.observe.WatchEvents(watching) })
	watch.Go(func() { s.observe.FollowIO(watching) })
	watch.Go(func() { s.streams.Watch(watching) })
	defer watch.Wait()
	defer endWatch()
	s.execute.StartSaving()
	ended := make(chan error, 1)
	programs := stream.ServeLocal(&s.gate, time.Duration(s.config.ListenUnix.Idle), local)
	defer programs.CloseConns()
	close(s.began)
	defer close(s.ended)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		programs.StopAccepting()
		s.execute.StopSaving()
		return errors.Join(fmt.Errorf("serve: %w", err), s.target.Close())
	case <-ctx.Done():
	}
	// If systemd owns the socket, new connections wait there for the next process.
	_ = l.Close()
	<-ended // so that no further connections are accepted
	programs.StopAccepting()
	return s.stop(server, programs)
}

// ListenLocal creates the socket for programs on this host. If none is configured, it returns nil.
// Closing the listener removes the socket.
func (s *Server) ListenLocal() (net.Listener, error) { return stream.ListenLocal(s.config.ListenUnix) }

// leaveWait is how long a stopping server still responds on its open connections after the last
// call has ended. Calls from clients that have not yet noticed that the server is stopping may
// still be in transit.
const leaveWait = time.Second

// stop waits for running calls, and closes all connections. The listeners must already be closed.
func (s *Server) stop(server *http.Server, programs *stream.Local) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.config.Limits.Drain))
	defer cancel()
	drained, left := s.gate.Drain()
	s.streams.Drain()
	close(s.stopping)
	s.log.Info("stopping", "calls", s.target.InFlight(), "bound", time.Duration(s.config.Limits.Drain).String())
	select {
	case <-drained:
	case <-ctx.Done():
		s.log.Warn("stopping although calls are still running", "calls", s.target.InFlight())
	}
	select { // calls that arrive now are refused rather than lost
	case <-left:
	case <-time.After(leaveWait):
	case <-ctx.Done():
	}
	programs.CloseConns()
	s.streams.Close()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		err = nil // Serve has closed the listener
	}
	s.execute.StopSaving()
	return errors.Join(err, s.target.Close())
}

// serverTLS returns the server's TLS configuration. It uses the current certificate, and takes
// versions, cipher suites and the policy for client certificates from the current settings.
func (s *Server) serverTLS() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // no HTTP/2; see web.Server.HTTP
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Current(), nil },
	}
	asking := base.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		offered := base.Clone()
		settings := s.gate.Settings()
		offered.ClientCAs, offered.ClientAuth = settings.ClientAuth()
		offered.MinVersion, offered.CipherSuites = settings.MinVersion, settings.CipherSuites
		return offered, nil
	}
	return asking
}
