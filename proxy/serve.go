package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Options of a Server; the zero value holds the defaults.
type Options struct {
	Schema  *rpcschema.Document // nil: rpcschema.Default()
	Log     *slog.Logger        // events and the audit log; nil: none
	Version string              // of the program, for the metrics
}

// NewServer makes a Server from a configuration. It does not listen or connect to
// the target. If it returns no error, the configuration is valid.
func NewServer(c *config.Config, opts Options) (*Server, error) {
	if opts.Schema == nil {
		opts.Schema = rpcschema.Default()
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	balancers, err := newBalancers(c)
	if err != nil {
		return nil, err
	}
	s := &Server{
		schema: opts.Schema, log: opts.Log, config: c, oldClients: oldClients{log: opts.Log},
		balancers: balancers, clients: clientconn.New(clientLimits(c, balancers), opts.Log), unreadBodyWait: unreadBodyWait,
		began: make(chan struct{}), ended: make(chan struct{}), version: opts.Version, process: newID(), stopping: make(chan struct{}), streamCheck: streamCheckInterval,
	}
	s.callRates.set(c.Limits.UserCallsPerSecond, c.Limits.UsersCallsPerSecond)
	s.figures, s.figuresReader = figures.NewShared(s.readFigures, figuresAge, figuresWait), figures.NewReader(s.schema, c.Metrics.LatencyHistograms...)
	s.targetMetrics = targetmetrics.New(c.Metrics.Volumes)
	s.events = events.New(eventsKept)
	s.handler = s.Handler()
	s.metrics = s.newMetrics(opts.Version)
	s.metrics.SetUsers(c.UserNames())
	if err := s.newAuditLog(); err != nil {
		return nil, err
	}
	settings, err := newSettings(c, s.schema, nil)
	if err != nil {
		return nil, err
	}
	s.settings.Store(settings)
	s.sessions = session.New[signedIn](settings.sessionLimits(), nil)
	s.flows = session.NewFlows(nil)
	s.auditLog.Feed.SetEnabled(settings.console.Enabled)
	if !c.TLS.InsecurePlaintext {
		if err := s.cert.Load(certSource(c), s.log); err != nil {
			return nil, err
		}
	}
	hasMemory := func(user string) bool { return !s.memory.Exhausted(user) }
	if s.target, err = newTarget(c, s.log, hasMemory, s.noteLateChange); err != nil {
		return nil, err
	}
	if s.restart, err = newRestart(c, s.schema, s.log, s.targetNow); err != nil {
		return nil, err
	}
	observer := quiesce.Observer{Froze: s.metrics.Froze, Refused: s.metrics.SnapshotRefused, Recovered: s.metrics.Thawed}
	if s.quiescer, err = newQuiescer(c, s.target, s.log, observer); err != nil {
		return nil, err
	}
	return s, nil
}

// Listen listens at the address of the configuration, for an IPv4 address on IPv4 only.
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

// Serve answers requests on l until ctx ends, and messages of SPDK's own protocol on local, which
// must be UNIX sockets. Then it closes the listeners, waits up to limits.drain for
// running calls, answers new ones on open connections for a short time and then refuses them,
// and closes the connections to the target. It may be called once.
func (s *Server) Serve(ctx context.Context, l net.Listener, local ...net.Listener) error {
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
	defer s.closeAuditLog()
	go s.target.Watch()
	recovering, endRecovery := context.WithCancel(context.Background())
	var recovery sync.WaitGroup
	recovery.Go(func() { s.quiescer.Run(recovering) })
	defer recovery.Wait()
	defer endRecovery()
	watching, endWatch := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { s.watchEvents(watching) })
	defer watch.Wait()
	defer endWatch()
	s.startSaving()
	ended := make(chan error, 1)
	programs := s.serveLocal(local)
	defer programs.closeConns()
	close(s.began)
	defer close(s.ended)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		programs.stopAccepting()
		s.stopSaving()
		return errors.Join(fmt.Errorf("serve: %w", err), s.target.Close())
	case <-ctx.Done():
	}
	// If systemd holds the socket, new connections wait there for the next process.
	_ = l.Close()
	<-ended // so that no further connection is accepted
	programs.stopAccepting()
	return s.stop(server, programs)
}

// stop waits for running calls and closes all connections. The listeners are closed.
func (s *Server) stop(server *http.Server, programs *localServer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.config.Limits.Drain))
	defer cancel()
	drained := s.inFlight.drain()
	close(s.stopping)
	s.log.Info("stopping", "calls", s.target.InFlight(), "bound", time.Duration(s.config.Limits.Drain).String())
	select {
	case <-drained:
	case <-ctx.Done():
		s.log.Warn("stopping although calls are running", "calls", s.target.InFlight())
	}
	programs.closeConns()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		err = nil // Serve has closed the listener
	}
	s.stopSaving()
	return errors.Join(err, s.target.Close())
}
