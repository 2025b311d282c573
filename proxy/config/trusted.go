package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// read reads a file named in the configuration.
func (c *Config) read(name string) ([]byte, error) {
	path, err := c.path(name)
	if err != nil {
		return nil, err
	}
	return ReadTrusted(path)
}

// ReadTrusted reads a file that controls access. It returns an error if every user of this host can
// change the file.
func ReadTrusted(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("every user of this host may change %s: check or replace its content, then chmod o-w %s", path, path)
	}
	text, err := io.ReadAll(file)
	return text, unreadable(path, err)
}

// unreadable adds the remedy to the errors for two common mistakes.
func unreadable(path string, err error) error {
	dir := os.Getenv(credentials[1:])
	within := dir != "" && filepath.Dir(path) == filepath.Clean(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && within:
		return missingSecret(dir, filepath.Base(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: give the service's group access to the file (chgrp spdk-proxy, chmod g+r), or put it into the directory of secrets", err)
	}
	return err
}

// missingSecret returns the error for a file that is missing from $CREDENTIALS_DIRECTORY. systemd
// passes a file NAME in the directory secrets as secrets_NAME.
func missingSecret(dir, credential string) error {
	name, renamed := strings.CutPrefix(credential, "secrets_")
	if renamed {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s/%s: %w: %s is set to %s, which has %s: systemd would pass that file as %s. To check by hand, unset %s and run `spdk-proxy check-config --secrets %s`; to serve without systemd, set the key to the path of the file",
				credentials, credential, fs.ErrNotExist, credentials, dir, name, credential, credentials, dir)
		}
	}
	return fmt.Errorf("%s/%s: %w: create %s in the directory of secrets (/etc/spdk-proxy/secrets, or --secrets of check-config), then restart the service, which reads that directory only when it starts", credentials, credential, fs.ErrNotExist, name)
}

// credentials is the prefix of the paths of files that systemd passes to the service.
const credentials = "$CREDENTIALS_DIRECTORY"

// path makes a path in the configuration absolute. Relative paths are relative to the configuration
// file. A path may begin with $CREDENTIALS_DIRECTORY.
func (c *Config) path(p string) (string, error) {
	if rest, ok := strings.CutPrefix(p, credentials+"/"); ok {
		dir := os.Getenv(credentials[1:])
		if dir == "" {
			return "", fmt.Errorf("%s: systemd sets %s, and only for the service. For check-config, create %s in the directory of secrets (--secrets; by default secrets beside the configuration); to serve without systemd, set the key to the path of the file",
				p, credentials, strings.TrimPrefix(rest, "secrets_"))
		}
		return filepath.Join(dir, rest), nil
	}
	if strings.HasPrefix(p, "$") {
		return "", fmt.Errorf("%s: only the variable %s is supported", p, credentials)
	}
	if filepath.IsAbs(p) {
		return p, nil
	}
	return filepath.Join(c.dir, p), nil
}
