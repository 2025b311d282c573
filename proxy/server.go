package proxy

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Options of a Server; the zero value holds the defaults.
type Options struct {
	Schema  *rpcschema.Document // nil: rpcschema.Default()
	Log     *slog.Logger        // events and the audit log; nil: none
	Version string              // of the program, for the metrics
}

// A Server is the proxy in front of one target.
type Server struct {
	schema *rpcschema.Document
	log    *slog.Logger
	config *config.Config // as started; what a reload may not change
	target *target.Target
	cert   cert.Shown

	settings atomic.Pointer[settings]
	calls    calls
	clients  *clientconn.Set
	held     held
	inside   *insideListener // see Alive
	metrics  *metrics.Metrics
	auditLog *auditlog.Log

	strangerWait time.Duration // see endUnread

	oldClients oldClients
	restart    *restart
	quiescer   *quiesce.Quiescer
}

// NewServer makes a Server of a configuration. It does not listen or connect
// yet; a configuration that it accepts is sound.
func NewServer(c *config.Config, opts Options) (*Server, error) {
	if opts.Schema == nil {
		opts.Schema = rpcschema.Default()
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{schema: opts.Schema, log: opts.Log, config: c, inside: newInsideListener(), clients: clientconn.New(clientLimits(c), opts.Log), auditLog: auditlog.New(opts.Log, opts.Schema), strangerWait: strangerWait, oldClients: oldClients{log: opts.Log}}
	s.metrics = s.newMetrics(opts.Version)
	s.metrics.SetUsers(c.UserNames())
	settings, err := newSettings(c, s.schema, nil)
	if err != nil {
		return nil, err
	}
	s.settings.Store(settings)
	if !c.TLS.InsecurePlaintext {
		if err := s.cert.Load(certSource(c), s.log); err != nil {
			return nil, err
		}
	}
	hasRoom := func(user string) bool { return !s.held.full(user) }
	if s.target, err = newTarget(c, s.log, hasRoom, s.changedLate); err != nil {
		return nil, err
	}
	if s.restart, err = newRestart(c, s.schema, s.log, s.targetNow); err != nil {
		return nil, err
	}
	watch := quiesce.Watch{Froze: s.metrics.Froze, Refused: s.metrics.SnapshotRefused, Recovered: s.metrics.Thawed}
	if s.quiescer, err = newQuiescer(c, s.target, s.log, watch); err != nil {
		return nil, err
	}
	return s, nil
}
