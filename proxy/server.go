package proxy

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
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
	config *Config // as started; what a reload may not change
	target *target.Target
	cert   certificate

	settings atomic.Pointer[settings]
	calls    calls
	clients  *connections
	held     held
	inside   *insideListener // see Alive
	metrics  *metrics.Metrics
	flood    flood

	strangerWait time.Duration // see endUnread

	oldClients oldClients
	restart    *restart
	quiescer   *quiesce.Quiescer
}

// settings are what a reload replaces as a whole: each call sees one state of
// the configuration from its beginning to its end.
type settings struct {
	authn   *authn.Authenticator
	policy  *policy.Policy
	tenancy *tenancy.Tenancy

	translate bool // see fit

	timeout  time.Duration
	timeouts map[string]time.Duration
	maxBody  int
	read     time.Duration

	snapshotsInUse string // see takeSnapshot

	documents *documents

	// See clientAuth.
	clientCAs       *x509.CertPool
	clientCAsExpire time.Time // the first of them

	// For the metrics.
	tokensExpire    map[string]time.Time // by user, the first of them
	learning        int                  // users
	needCertificate bool
}

// NewServer makes a Server of a configuration. It does not listen or connect
// yet; a configuration that it accepts is sound.
func NewServer(c *Config, opts Options) (*Server, error) {
	if opts.Schema == nil {
		opts.Schema = rpcschema.Default()
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{schema: opts.Schema, log: opts.Log, config: c, inside: newInsideListener(), clients: newConnections(c.Limits, opts.Log), flood: flood{log: opts.Log}, strangerWait: strangerWait, oldClients: oldClients{log: opts.Log}}
	s.metrics = s.newMetrics(opts.Version)
	s.metrics.SetUsers(c.userNames())
	settings, err := newSettings(c, s.schema, nil)
	if err != nil {
		return nil, err
	}
	s.settings.Store(settings)
	if !c.TLS.InsecurePlaintext {
		if err := s.cert.load(c, s.log); err != nil {
			return nil, err
		}
	}
	if s.target, err = s.newTarget(c); err != nil {
		return nil, err
	}
	if err := s.newRestart(c); err != nil {
		return nil, err
	}
	if err := s.newQuiescer(c); err != nil {
		return nil, err
	}
	return s, nil
}

func newSettings(c *Config, schema *rpcschema.Document, former *settings) (*settings, error) {
	if former == nil {
		former = &settings{}
	}
	var wrong []error
	authorities, expire, err := loadClientCAs(c)
	wrong = append(wrong, err)
	who, err := newAuthenticator(c, authorities, former.authn)
	wrong = append(wrong, err)
	may, err := newPolicy(c, schema)
	wrong = append(wrong, err)
	whose, err := newTenancy(c, schema, former.tenancy)
	wrong = append(wrong, err)
	timeouts, err := timeoutsOf(c.Target.Timeouts, schema)
	wrong = append(wrong, err)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return &settings{
		authn: who, policy: may, tenancy: whose, translate: c.Compatibility.Translate,
		timeout: time.Duration(c.Target.Timeouts.Default), timeouts: timeouts,
		maxBody: c.Limits.RequestKiB << 10, read: time.Duration(c.Limits.Read),
		snapshotsInUse: c.Target.SnapshotsInUse, documents: &documents{},
		clientCAs: authorities, clientCAsExpire: expire, needCertificate: c.TLS.ClientAuth == clientAuthRequired,
		tokensExpire: c.tokensExpire(), learning: c.learningUsers(),
	}, nil
}

func timeoutsOf(c TimeoutConfig, schema *rpcschema.Document) (map[string]time.Duration, error) {
	timeouts := map[string]time.Duration{}
	for name, d := range slowMethods {
		timeouts[name] = max(d, time.Duration(c.Default))
	}
	var wrong []error
	for name, d := range c.Methods {
		if _, err := schema.Find(name, rpcschema.Release{}); err != nil {
			wrong = append(wrong, fmt.Errorf("target.timeouts.methods: %w", err))
		}
		timeouts[name] = time.Duration(d)
	}
	return timeouts, errors.Join(wrong...)
}

// timeoutOf is how long the answer to a method is waited for.
func (s *settings) timeoutOf(method string) time.Duration {
	if d, ok := s.timeouts[method]; ok {
		return d
	}
	return s.timeout
}

// Reload replaces users, roles, timeouts, limits of requests and the
// certificate. Calls under way go on as they began. With an error, nothing has
// changed.
func (s *Server) Reload(c *Config) error {
	old := s.config
	var fixed []error
	for key, changed := range map[string]bool{
		"listen":                 c.Listen != old.Listen,
		"tls.insecure_plaintext": c.TLS.InsecurePlaintext != old.TLS.InsecurePlaintext,
		"target.socket":          c.Target.Socket != old.Target.Socket,
		"target.connections":     c.Target.Connections != old.Target.Connections,
		"target.max_in_flight":   c.Target.MaxInFlight != old.Target.MaxInFlight,
		"target.peer_users":      !slices.Equal(c.Target.PeerUsers, old.Target.PeerUsers),
		"limits.connections":     c.Limits.Connections != old.Limits.Connections || c.Limits.ConnectionsPerSource != old.Limits.ConnectionsPerSource,
		"target.save":            c.Target.Save != old.Target.Save,
		"target.keys":            c.Target.Keys != old.Target.Keys,
		"target.freeze":          c.Target.Freeze != old.Target.Freeze,
		"log":                    c.Log != old.Log,
		"metrics":                c.Metrics != old.Metrics,
		"limits.idle":            c.Limits.Idle != old.Limits.Idle,
		"limits.drain":           c.Limits.Drain != old.Limits.Drain,
	} {
		if changed {
			fixed = append(fixed, fmt.Errorf("%s has changed, which takes a restart", key))
		}
	}
	if err := errors.Join(fixed...); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	settings, err := newSettings(c, s.schema, s.settings.Load())
	if err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	if !c.TLS.InsecurePlaintext {
		if err := s.cert.load(c, s.log); err != nil {
			return fmt.Errorf("reload: %w", err)
		}
	}
	s.settings.Store(settings)
	s.metrics.SetUsers(c.userNames())
	s.target.LimitUsers(c.Limits.UserInFlight, c.Limits.UsersInFlight)
	return nil
}
