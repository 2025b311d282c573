package config

import (
	"fmt"
	"net"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/policy"
)

// A Script contains the command-line arguments of SPDK's rpc_http_proxy.py.
type Script struct {
	Host, Port, User, Password string
	Socket                     string
	Cert                       string // PEM file with certificate and key; "" means plain HTTP
}

// Config returns a configuration with which the proxy behaves like the script: a single user may
// call every method.
func (s Script) Config() (*Config, error) {
	hash, err := authn.HashPassword(s.Password)
	if err != nil {
		return nil, fmt.Errorf("PASSWORD: %w", err)
	}
	c := Default()
	c.Listen = net.JoinHostPort(s.Host, s.Port)
	c.TLS = TLS{CertFile: s.Cert, KeyFile: s.Cert, InsecurePlaintext: s.Cert == ""}
	c.Target.Socket = s.Socket
	c.Users = []User{{Name: s.User, PasswordHash: hash, Roles: []string{policy.Admin}}}
	c.Log.Format = "text"
	c.dir = "."
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.warnings = append(c.warnings,
		"the password is on the command line, and one user may call everything: write a configuration and use `spdk-proxy serve` (see `spdk-proxy --help`)")
	if s.Cert == "" {
		c.warnings = append(c.warnings, "without -c CERT, passwords and calls are sent unencrypted")
	}
	return &c, nil
}
