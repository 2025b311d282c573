package proxy

import (
	"errors"
	"log/slog"

	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// CheckFile loads and checks a configuration file. The error lists every problem found. CheckFile
// does not create a certificate or connect to anything.
func CheckFile(path string, schema *rpcschema.Document) (*config.Config, error) {
	c, err := config.Load(path)
	if err != nil {
		if more := checkRoles(path, schema); more != nil {
			err = errors.Join(err, config.InFile(path, more))
		}
		return nil, err
	}
	if err := check(c, schema); err != nil {
		return nil, config.InFile(path, err)
	}
	return c, nil
}

// check returns the errors in a configuration that config.Load does not detect.
func check(c *config.Config, schema *rpcschema.Document) error {
	_, err := gate.NewSettings(c, schema, nil)
	if c.TLS.CertFile != "" {
		_, certErr := cert.Load(certSource(c), slog.New(slog.DiscardHandler))
		err = errors.Join(err, certErr)
	}
	return err
}

// checkRoles returns the errors in roles, tenants and timeouts of a file in which other keys are
// invalid, so that an administrator sees all mistakes at once.
func checkRoles(path string, schema *rpcschema.Document) error {
	c, err := config.LoadWhatDecodes(path)
	if err != nil {
		return nil // config.Load has already returned this error
	}
	return gate.CheckRoles(c, schema)
}

// certSource returns where the configured certificate comes from.
func certSource(c *config.Config) cert.Source {
	return cert.Source{
		CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, SelfSignedDir: c.TLS.SelfSignedDir, Listen: c.Listen, ReadFile: config.ReadTrusted,
	}
}
