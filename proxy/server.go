package proxy

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/observe"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/stream"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy/owners"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Server is the proxy in front of one target.
type Server struct {
	// the configuration at startup, used only for keys that a reload cannot change
	config *config.Config
	log    *slog.Logger
	cert   cert.Shown
	claim  targetClaim

	gate     gate.Gate
	execute  *execute.Executor
	observe  *observe.Observer
	web      *web.Server
	console  *console.Server
	streams  *stream.Sockets
	target   *target.Target
	clients  *clientconn.Set
	events   *events.Hub
	sessions *session.Store[web.SignedIn]
	metrics  *metrics.Metrics
	auditLog *auditlog.Log
	callLog  io.Closer // closes the audit log's file; may be nil
	handler  http.Handler

	began    chan struct{} // closed when Serve begins to accept connections; see Alive
	ended    chan struct{} // closed when Serve no longer accepts connections
	stopping chan struct{} // closed when the server begins to stop
}

// Options configures a Server. The zero value selects the defaults.
type Options struct {
	Schema  *rpcschema.Document // nil selects rpcschema.Default()
	Log     *slog.Logger        // events and the audit log; nil discards them
	Version string              // version of the program, for the metrics
}

// eventsKept is the number of events kept for clients that reconnect. An event takes about 300
// bytes.
const eventsKept = 4096

// NewServer returns a Server for a configuration. It neither listens nor connects to the target. If
// NewServer returns no error, the configuration is valid.
func NewServer(c *config.Config, opts Options) (*Server, error) {
	schema, log := opts.Schema, opts.Log
	if schema == nil {
		schema = rpcschema.Default()
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	balancers, err := web.NewBalancers(c)
	if err != nil {
		return nil, err
	}
	settings, err := gate.NewSettings(c, schema, nil)
	if err != nil {
		return nil, err
	}
	s := &Server{
		config: c, log: log, claim: targetClaim{socket: c.Target.Socket, log: log}, clients: clientconn.New(clientLimits(c, balancers), log), events: events.New(eventsKept),
		sessions: session.New[web.SignedIn](settings.SessionLimits(), nil),
		began:    make(chan struct{}), ended: make(chan struct{}), stopping: make(chan struct{}),
	}
	s.gate.Apply(settings, c.Limits)
	s.observe = observe.New(observe.Options{Gate: &s.gate, Events: s.events, Cert: &s.cert, Sessions: s.sessions.Count, Shared: s.claim.shared}, c, schema)
	s.metrics = metrics.New(metrics.Options{Version: opts.Version, Methods: names(schema, s.ownMethods()), State: s.observe.State, Log: log})
	s.metrics.SetUsers(c.UserNames())
	if err := s.newAuditLog(schema); err != nil {
		return nil, err
	}
	s.auditLog.Feed.SetEnabled(settings.Console.Enabled)
	if !c.TLS.InsecurePlaintext {
		if err := s.cert.Load(certSource(c), log); err != nil {
			return nil, err
		}
	}
	if s.target, err = s.newTarget(); err != nil {
		return nil, err
	}
	s.execute, err = execute.New(execute.Options{
		Config: c, Schema: schema, Log: log, Target: s.target, Stopped: s.ended,
		Observer: quiesce.Observer{Froze: s.metrics.Froze, Refused: s.metrics.SnapshotRefused, Recovered: s.metrics.Thawed},
		Timeout:  s.gate.Timeout, Executed: s.gate.Executed, Contain: s.gate.Contain,
	})
	if err != nil {
		return nil, err
	}
	if path := ownersPath(c); path != "" {
		f, err := owners.Open(path, log)
		if err != nil {
			return nil, err
		}
		settings.Tenancy.Remember(f)
	}
	process := gate.NewID()
	s.web = web.New(web.Options{Gate: &s.gate, Balancers: balancers, Sessions: s.sessions, Events: s.events, Stopping: s.stopping, Complete: s.complete})
	s.console = console.New(console.Options{Web: s.web, Gate: &s.gate, Sessions: s.sessions, AuditLog: s.auditLog, Version: opts.Version, Process: process})
	s.web.Console = s.console.Handler()
	s.streams = stream.NewSockets(&s.gate, s.web, time.Duration(c.Limits.Idle))
	s.web.Messages = s.streams.Handler()
	s.gate.Complete(gate.Options{
		Schema: schema, Log: log, Target: s.target, Execute: s.execute, Clients: s.clients, Metrics: s.metrics, AuditLog: s.auditLog,
	}, s.ownMethods())
	s.handler = s.web.Handler()
	return s, nil
}

// names returns the methods that may be labels in the metrics.
func names(schema *rpcschema.Document, own []gate.Own) (list []string) {
	for _, m := range schema.Methods() {
		list = append(list, m.Name)
	}
	for _, o := range own {
		if _, known := schema.Method(o.Name); !known {
			list = append(list, o.Name)
		}
	}
	return list
}

// newTarget creates the Target that calls spdk_tgt.
func (s *Server) newTarget() (*target.Target, error) {
	uids, err := s.config.PeerUIDs()
	if err != nil {
		return nil, err
	}
	return target.New(target.Config{
		Socket: s.config.Target.Socket, Connections: s.config.Target.Connections, PeerUIDs: uids, Log: s.log, HasMemory: s.gate.HasMemory,
		Late:        func(method string, params map[string]any, err error) { s.execute.NoteLate(method, params, err) },
		MaxInFlight: s.config.Target.MaxInFlight, UserInFlight: s.config.Limits.UserInFlight, UsersInFlight: s.config.Limits.UsersInFlight,
	}), nil
}

// Handler returns the handler for all of the proxy's paths.
func (s *Server) Handler() http.Handler { return s.handler }

// complete reports whether the target contains every object in its saved configuration.
func (s *Server) complete() bool { return s.execute.Saves() && s.execute.Saver().Complete() }

// Reloaded counts a reload in the metrics. If err is not nil, the reload counts as failed, even if
// Reload was not called because the file could not be read.
func (s *Server) Reloaded(err error) { s.metrics.Reloaded(err) }

// clientLimits returns the limits on clients' connections.
func clientLimits(c *config.Config, b web.Balancers) clientconn.Limits {
	return clientconn.Limits{
		Connections: c.Limits.Connections, PerSource: c.Limits.ConnectionsPerSource, WriteWait: clientconn.WriteWait,
		Balancers: clientconn.Balancers{Trusted: b.Trusted, ProxyProtocol: b.ProxyProtocol(), Wait: clientconn.HeaderWait},
	}
}
