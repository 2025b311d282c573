package proxy

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// This file makes the stages and settings from the configuration.

// newSettings makes the part of the configuration that a reload replaces. Stages keep what
// they remember in former, which may be nil.
func newSettings(c *config.Config, schema *rpcschema.Document, former *settings) (*settings, error) {
	if former == nil {
		former = &settings{}
	}
	var wrong []error
	authorities, expire, err := cert.LoadClientCAs(c.TLS.ClientCAFile, config.ReadTrusted)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("tls.client_ca_file: %w", err))
	}
	revoked, nextUpdate, err := cert.LoadRevocationLists(c.TLS.ClientCRLFile, config.ReadTrusted)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("tls.client_crl_file: %w", err))
	}
	authenticator, err := newAuthenticator(c, authorities, revoked, former.authn)
	wrong = append(wrong, err)
	roles, err := newPolicy(c, schema)
	wrong = append(wrong, err)
	tenants, err := newTenancy(c, schema, former.tenancy)
	wrong = append(wrong, err)
	minVersion, suites, err := c.TLS.Protocol()
	wrong = append(wrong, err)
	timeouts, err := c.Target.Timeouts.ByMethod(schema)
	wrong = append(wrong, err)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return &settings{
		authn: authenticator, policy: roles, tenancy: tenants, translate: c.Compatibility.Translate,
		timeout: time.Duration(c.Target.Timeouts.Default), timeouts: timeouts,
		maxBody: c.Limits.RequestKiB << 10, read: time.Duration(c.Limits.Read),
		snapshotsInUse: c.Target.SnapshotsInUse, acceptLoading: c.Target.AcceptLoadingWhatHostsWrite, documents: &documents{}, console: c.Console, dryRun: dryrun.Of(c, schema, roles, tenants),
		clientCAs: authorities, clientCAsExpire: expire, crlsExpire: nextUpdate, needCertificate: c.TLS.ClientAuth == config.ClientAuthRequired,
		minVersion: minVersion, cipherSuites: suites,
		tokensExpire: c.TokensExpire(), learning: c.LearningUsers(),
	}, nil
}

// certSource says where the certificate of the configuration comes from.
func certSource(c *config.Config) cert.Source {
	return cert.Source{
		CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, SelfSignedDir: c.TLS.SelfSignedDir, Listen: c.Listen, ReadFile: config.ReadTrusted,
	}
}

// headerWait bounds how long a client may take for a request's header, for the TLS handshake, and a
// load balancer for the header of a connection.
const headerWait = 10 * time.Second

// writeWait bounds how long one write to a client may take.
const writeWait = 30 * time.Second

// clientLimits are the limits of clients' connections.
func clientLimits(c *config.Config, b balancers) clientconn.Limits {
	return clientconn.Limits{
		Connections: c.Limits.Connections, PerSource: c.Limits.ConnectionsPerSource, WriteWait: writeWait,
		Balancers: clientconn.Balancers{Trusted: b.trusted, ProxyProtocol: !b.headers, Wait: headerWait},
	}
}

// newAuthenticator makes the stage that authenticates the sender of a request. It keeps the
// keys that former has fetched from issuers.
func newAuthenticator(c *config.Config, authorities *x509.CertPool, revoked []*x509.RevocationList, former *authn.Authenticator) (*authn.Authenticator, error) {
	users, err := c.AuthUsers()
	wrong := []error{err}
	issuers, err := c.AuthIssuers()
	if err := errors.Join(append(wrong, err)...); err != nil {
		return nil, err
	}
	return authn.New(users, authn.Options{
		FailuresPerMinute: c.Limits.AuthFailuresPerMinute,
		ClientCAs:         authorities, Revoked: revoked, RequireCertificate: c.TLS.ClientAuth == config.ClientAuthRequired,
		Issuers: issuers, Former: former,
	})
}

// newPolicy makes the stage that authorizes calls.
func newPolicy(c *config.Config, schema *rpcschema.Document) (*policy.Policy, error) {
	return policy.New(c.Roles, c.PolicyUsers(), schema)
}

// newTenancy makes the stage that knows which objects belong to which tenant. It keeps what
// former has counted for quotas.
func newTenancy(c *config.Config, schema *rpcschema.Document, former *tenancy.Tenancy) (*tenancy.Tenancy, error) {
	tenants, err := c.TenancyTenants()
	wrong := []error{err}
	made, err := tenancy.New(tenants, c.TenantsOfUsers(), schema, former)
	return made, errors.Join(append(wrong, err)...)
}

// newTarget makes the stage that calls spdk_tgt. hasMemory reports whether a user may have
// another long answer, late is called with calls that end after their deadline.
func newTarget(c *config.Config, log *slog.Logger, hasMemory func(user string) bool, late func(method string, params map[string]any, err error)) (*target.Target, error) {
	uids, err := c.PeerUIDs()
	if err != nil {
		return nil, err
	}
	return target.New(target.Config{
		Socket: c.Target.Socket, Connections: c.Target.Connections, PeerUIDs: uids, Log: log, HasMemory: hasMemory, Late: late,
		MaxInFlight: c.Target.MaxInFlight, UserInFlight: c.Limits.UserInFlight, UsersInFlight: c.Limits.UsersInFlight,
	}), nil
}

// newRestart opens what a restarted target needs, as far as the configuration enables it.
// connect connects to the running process of the target.
func newRestart(c *config.Config, schema *rpcschema.Document, log *slog.Logger, connect func(context.Context) (persist.Target, error)) (*restart, error) {
	r := &restart{stop: func() {}}
	var err error
	switch k := c.Target.Keys; {
	case k.Socket != "":
		r.keys = keys.New(keys.Keeper{Socket: k.Socket})
	case k.Dir != "":
		folder, err := keys.OpenFolder(k.Dir)
		if err != nil {
			return nil, err
		}
		r.keys = keys.New(folder)
	}
	if c.Target.Save.Dir == "" {
		return r, nil
	}
	if r.folder, err = persist.OpenFolder(c.Target.Save.Dir, c.Target.Save.Keep); err != nil {
		return nil, err
	}
	r.saver = persist.New(persist.Options{
		Folder: r.folder, Schema: schema, Log: log, Target: connect, DisableAutoExamine: c.Target.Save.DisableAutoExamine,
		Process: func() (string, error) { return persist.ProcessAt(c.Target.Socket) },
	})
	return r, nil
}

// newQuiescer makes the Quiescer, which freezes volumes for snapshots, and opens its journal.
func newQuiescer(c *config.Config, t *target.Target, log *slog.Logger, observer quiesce.Observer) (*quiesce.Quiescer, error) {
	uids, err := c.PeerUIDs()
	if err != nil {
		return nil, err
	}
	o := quiesce.Options{
		At: quiesce.Place{Socket: c.Target.Socket, PeerUIDs: uids}, Connect: connectDirectly, Process: persist.ProcessAt, Deleting: t.Deleting, Enter: enterOperation(t), Log: log, Observer: observer,
	}
	if c.Target.Freeze.Dir != "" {
		if o.Folder, err = quiesce.OpenFolder(c.Target.Freeze.Dir); err != nil {
			return nil, err
		}
		log.Info("volumes in use can be frozen for snapshots", "journal", c.Target.Freeze.Dir)
	} else {
		log.Warn("snapshots of volumes in use are refused: there is no freeze journal. Set target.freeze.dir")
	}
	return quiesce.New(o), nil
}

// Operations of the Quiescer that run at once, each with a connection of its own, of the 64 that
// SPDK allows. One user alone gets half of them.
const (
	maxOperations = 16
	maxBarriers   = 16 // snapshots with a barrier, which wait for their client
	operationWait = 10 * time.Second
)

// enterOperation makes the function that grants the Quiescer's operations their slots. An
// operation counts as a running call of its user. Snapshots with a barrier have slots of their
// own, so that no other operation waits for their clients.
func enterOperation(t *target.Target) func(ctx context.Context, user string, awaits bool) (func(), error) {
	operations := target.NewSlots(target.Limits{Total: maxOperations, PerUser: maxOperations}, operationWait)
	barriers := target.NewSlots(target.Limits{Total: maxBarriers, PerUser: maxBarriers}, operationWait)
	return func(ctx context.Context, user string, awaits bool) (leave func(), err error) {
		endCall, err := t.AcquireSlot(ctx, user)
		if err != nil {
			return nil, err
		}
		slots := operations
		if awaits {
			slots = barriers
		}
		release, err := slots.Acquire(ctx, user)
		if err != nil {
			endCall()
			return nil, err
		}
		return func() { release(); endCall() }, nil
	}
}

// connectDirectly connects to one process of the target. It identifies the process after it
// has connected: if the process is replaced in between, the connection is dead.
func connectDirectly(ctx context.Context, at quiesce.Place) (*quiesce.Target, error) {
	conn, err := target.New(target.Config{Socket: at.Socket, PeerUIDs: at.PeerUIDs}).Dial(ctx)
	var down *target.DownError
	if errors.As(err, &down) && (errors.Is(down.Err, fs.ErrNotExist) || errors.Is(down.Err, syscall.ECONNREFUSED)) {
		return nil, fmt.Errorf("%w: %w", quiesce.ErrAway, err)
	}
	if err != nil {
		return nil, err
	}
	process, err := persist.ProcessAt(at.Socket)
	if err != nil { // it has just gone, and its socket with it
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", quiesce.ErrAway, &target.DownError{Socket: at.Socket, Err: err})
	}
	return &quiesce.Target{Caller: conn, Process: process, Release: conn.Release(), Close: conn.Close}, nil
}
