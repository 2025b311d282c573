package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/tenancy/owners"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// CheckFile loads and checks a configuration file. The error lists all problems. CheckFile neither
// creates a certificate nor connects to anything.
func CheckFile(path string, schema *rpcschema.Document) (*config.Config, error) {
	c, err := config.Load(path)
	if err != nil {
		if more := checkRoles(path, schema); more != nil {
			err = errors.Join(err, config.InFile(path, more))
		}
		return nil, err
	}
	if err := errors.Join(check(c, schema), checkPlaces(c)); err != nil {
		return nil, config.InFile(path, err)
	}
	return c, nil
}

// checkPlaces checks the directories and files that the proxy writes, and returns the errors that
// the proxy would return. It ignores those that are missing, because the proxy creates them, and
// those that this process is not permitted to examine.
func checkPlaces(c *config.Config) error {
	var wrong []error
	for _, place := range []struct {
		key, path string
		check     func(path string) error
	}{
		{"target.save.dir", c.Target.Save.Dir, persist.CheckFolder},
		{"target.keys.dir", c.Target.Keys.Dir, keys.CheckFolder},
		{"target.freeze.dir", c.Target.Freeze.Dir, quiesce.CheckFolder},
		{"log.calls.path", c.Log.Calls.Path, auditlog.CheckFile},
		{"owners of subsystems", ownersPath(c), owners.Check},
	} {
		if place.path == "" {
			continue
		}
		if err := place.check(place.path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			wrong = append(wrong, fmt.Errorf("%s: %w", place.key, err))
		}
	}
	if c.TLS.CertFile == "" && !c.TLS.InsecurePlaintext {
		if err := cert.CheckSelfSigned(certSource(c)); err != nil && !errors.Is(err, fs.ErrPermission) {
			wrong = append(wrong, fmt.Errorf("tls.self_signed_dir: %w", err))
		}
	}
	return errors.Join(wrong...)
}

// ownersPath returns the path of the file that records which tenants own which subsystems. It
// returns "" if there is no directory for the file.
func ownersPath(c *config.Config) string {
	if c.StateDir() == "" {
		return ""
	}
	return filepath.Join(c.StateDir(), "subsystem-owners")
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

// checkRoles returns the errors in a file's roles, tenants and timeouts even if other keys are
// invalid, so that an administrator sees all mistakes at once.
func checkRoles(path string, schema *rpcschema.Document) error {
	c, err := config.LoadWhatDecodes(path)
	if err != nil {
		return nil // config.Load has already returned this error
	}
	return gate.CheckRoles(c, schema)
}

// certSource returns the source of the configured certificate.
func certSource(c *config.Config) cert.Source {
	return cert.Source{
		CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, SelfSignedDir: c.TLS.SelfSignedDir, Listen: c.Listen, ReadFile: config.ReadTrusted,
	}
}
