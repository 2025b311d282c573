package config

import (
	"errors"
	"fmt"
	"net"
)

// validate checks the values of the keys. Values that depend on the schema of SPDK's methods are
// checked later, when a Server is created.
func (c *Config) validate() error {
	return errors.Join(c.validateListen(), c.validateListenUnix(), c.validateLoadBalancers(), c.validateTLS(), c.validateTarget(), c.validateRestart(), c.validateFreeze(), c.validateUsers(), c.validateRest(), c.validateLog(), c.validateLimits(), c.validateMetrics(), c.validateConsole())
}

func (c *Config) validateListen() error {
	if c.Listen == "" {
		return errors.New(`listen is missing: set an address and a port, such as listen: "0.0.0.0:9009"`)
	}
	if _, port, err := net.SplitHostPort(c.Listen); err != nil || port == "" {
		return errors.New(`listen must be an address and a port, such as "0.0.0.0:9009" or "[::]:9009"`)
	}
	return nil
}

func (c *Config) validateTLS() (err error) {
	t := &c.TLS
	files := t.CertFile != "" || t.KeyFile != ""
	switch {
	case t.InsecurePlaintext && (files || t.SelfSignedDir != ""):
		return errors.New("tls: insecure_plaintext cannot be combined with certificate files: remove one of them")
	case files && t.SelfSignedDir != "":
		return errors.New("tls: set either cert_file and key_file, or self_signed_dir")
	case files && (t.CertFile == "" || t.KeyFile == ""):
		return errors.New("tls: set both cert_file and key_file; a file with both can be used for both keys")
	}
	if _, _, err := t.Protocol(); err != nil {
		return err
	}
	if err := t.validateClients(); err != nil {
		return err
	}
	for _, p := range []*string{&t.CertFile, &t.KeyFile, &t.SelfSignedDir, &t.ClientCAFile, &t.ClientCRLFile} {
		if *p != "" {
			var wrong error
			*p, wrong = c.path(*p)
			err = errors.Join(err, wrong)
		}
	}
	return err
}

func (c *Config) validateTarget() error {
	var wrong []error
	if c.Target.Socket == "" {
		wrong = append(wrong, errors.New("target.socket is empty: set it to the path in spdk_tgt's option -r, by default /var/tmp/spdk.sock"))
	}
	// SPDK serves 64 connections in total, some of which other programs need.
	wrong = append(wrong, between("target.connections", c.Target.Connections, 32), between("target.max_in_flight", c.Target.MaxInFlight, 65536))
	return errors.Join(wrong...)
}

func (c *Config) validateRest() error {
	var wrong []error
	// SPDK accepts requests of at most 256 KiB.
	wrong = append(wrong, between("limits.request_kib", c.Limits.RequestKiB, 256), between("limits.auth_failures_per_minute", c.Limits.AuthFailuresPerMinute, 10000))
	return errors.Join(wrong...)
}

func between(key string, n, most int) error {
	if n < 1 || n > most {
		return fmt.Errorf("%s must be 1 to %d", key, most)
	}
	return nil
}
