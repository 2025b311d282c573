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

// read reads a file that the configuration names.
func (c *Config) read(name string) ([]byte, error) {
	path, err := c.path(name)
	if err != nil {
		return nil, err
	}
	return ReadTrusted(path)
}

// ReadTrusted reads a file that decides who may do what. It refuses one that
// everybody on this host may change.
func ReadTrusted(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("everybody on this host may change %s: replace what it holds if somebody may have, then chmod o-w %s", path, path)
	}
	text, err := io.ReadAll(file)
	return text, unreadable(path, err)
}

// unreadable says what to do about two mistakes that everybody makes once.
func unreadable(path string, err error) error {
	folder := os.Getenv(credentials[1:])
	within := folder != "" && filepath.Dir(path) == filepath.Clean(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist) && within:
		return fmt.Errorf("%s/%s: %w among the service's secrets (/etc/spdk-proxy/secrets), or did not when the service started: make it, then restart the service", credentials, filepath.Base(path), fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: give the file to the service's group (chgrp spdk-proxy, chmod g+r), or put it among its secrets", err)
	}
	return err
}

// credentials begins the paths of files that systemd hands over.
const credentials = "$CREDENTIALS_DIRECTORY"

// path makes a path of the configuration absolute: it is relative to the file
// that it stands in, and may begin with $CREDENTIALS_DIRECTORY.
func (c *Config) path(p string) (string, error) {
	if rest, ok := strings.CutPrefix(p, credentials+"/"); ok {
		dir := os.Getenv(credentials[1:])
		if dir == "" {
			return "", fmt.Errorf("%s: systemd sets %s for what LoadCredential= names; to check by hand, set it to the folder of the file", p, credentials)
		}
		return filepath.Join(dir, rest), nil
	}
	if strings.HasPrefix(p, "$") {
		return "", fmt.Errorf("%s: no variable but %s is known here", p, credentials)
	}
	if filepath.IsAbs(p) {
		return p, nil
	}
	return filepath.Join(c.dir, p), nil
}
