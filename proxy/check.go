package proxy

import (
	"errors"
	"log/slog"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// CheckFile reads a configuration file and tells everything that is wrong with it,
// without making a certificate or connecting.
func CheckFile(path string, schema *rpcschema.Document) (*Config, error) {
	c, err := LoadConfig(path)
	if err != nil {
		if more := checkRoles(path, schema); more != nil {
			err = errors.Join(err, within(path, more))
		}
		return nil, err
	}
	if err := check(c, schema); err != nil {
		return nil, within(path, err)
	}
	return c, nil
}

// check tells everything that is wrong with a configuration beyond what LoadConfig
// sees.
func check(c *Config, schema *rpcschema.Document) error {
	_, err := newSettings(c, schema, nil)
	if c.TLS.CertFile != "" {
		_, certErr := loadCertificate(c, slog.New(slog.DiscardHandler))
		err = errors.Join(err, certErr)
	}
	return err
}

// checkRoles tells what is wrong with roles, tenants and timeouts in a file whose
// other keys are wrong, so that nobody has to mend these first.
func checkRoles(path string, schema *rpcschema.Document) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // which was said already
	}
	c := defaults()
	_ = yaml.Unmarshal(text, &c) // decodes all that it can; what it cannot was said already
	_, roles := newPolicy(&c, schema)
	_, tenants := newTenancy(&c, schema, nil)
	_, timeouts := timeoutsOf(c.Target.Timeouts, schema)
	return errors.Join(roles, tenants, timeouts)
}
