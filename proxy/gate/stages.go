package gate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// NewSettings returns the Settings for a configuration. The stages take over the caches and counts
// of former, which may be nil.
func NewSettings(c *config.Config, schema *rpcschema.Document, former *Settings) (*Settings, error) {
	if former == nil {
		former = &Settings{}
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
	authenticator, err := newAuthenticator(c, authorities, revoked, former.Authn)
	wrong = append(wrong, err)
	roles, err := newPolicy(c, schema)
	wrong = append(wrong, err)
	tenants, err := newTenancy(c, schema, former.Tenancy)
	wrong = append(wrong, err)
	minVersion, suites, err := c.TLS.Protocol()
	wrong = append(wrong, err)
	timeouts, err := c.Target.Timeouts.ByMethod(schema)
	wrong = append(wrong, err)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return &Settings{
		Authn: authenticator, Policy: roles, Tenancy: tenants, MaxBody: c.Limits.RequestKiB << 10, Read: time.Duration(c.Limits.Read),
		decide:  decide.Stages{Schema: schema, Policy: roles, Translate: c.Compatibility.Translate},
		timeout: time.Duration(c.Target.Timeouts.Default), timeouts: timeouts, snapshotsInUse: c.Target.SnapshotsInUse, documents: &documents{}, AcceptLoading: c.Target.AcceptLoadingWhatHostsWrite, AcceptUncounted: c.Target.AcceptChangesWithoutCounts,
		Console: c.Console, DryRun: dryrun.Of(c, schema, roles, tenants),
		clientCAs: authorities, ClientCAsExpire: expire, CRLsExpire: nextUpdate, needCertificate: c.TLS.ClientAuth == config.ClientAuthRequired,
		MinVersion: minVersion, CipherSuites: suites, TokensExpire: c.TokensExpire(), Learning: c.LearningUsers(),
	}, nil
}

// newAuthenticator creates the authentication stage. It takes over the issuers' keys that former
// has fetched.
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

// newPolicy creates the authorization stage.
func newPolicy(c *config.Config, schema *rpcschema.Document) (*policy.Policy, error) {
	return policy.New(c.Roles, c.PolicyUsers(), schema)
}

// newTenancy creates the stage that determines which objects belong to which tenant. It takes over
// former's counts of tenants' usage.
func newTenancy(c *config.Config, schema *rpcschema.Document, former *tenancy.Tenancy) (*tenancy.Tenancy, error) {
	tenants, err := c.TenancyTenants()
	wrong := []error{err}
	made, err := tenancy.New(tenants, c.TenantsOfUsers(), schema, former)
	return made, errors.Join(append(wrong, err)...)
}

// CheckRoles returns the mistakes in a configuration's roles, tenants and timeouts even if other
// keys are wrong, so that an administrator can correct all mistakes at once.
func CheckRoles(c *config.Config, schema *rpcschema.Document) error {
	_, roles := newPolicy(c, schema)
	_, tenants := newTenancy(c, schema, nil)
	_, timeouts := c.Target.Timeouts.ByMethod(schema)
	return errors.Join(roles, tenants, timeouts)
}
