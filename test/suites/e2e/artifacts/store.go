package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/tools/debian"
)

// A Log is a function that reports progress.
type Log func(format string, args ...any)

// unused is the time without use after which directories of earlier versions are removed.
const unused = 30 * 24 * time.Hour

// A Store is a directory of built programs and unpacked packages, outside the clone. Only one
// process at a time can open it.
type Store struct {
	root string // contains all versions
	log  Log
	lock *os.File
}

// Open opens this user's store. It waits while another process has the store open.
func Open(log Log) (*Store, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	s := &Store{root: filepath.Join(cache, "spdkgate", "e2e"), log: log}
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return nil, err
	}
	if s.lock, err = os.Open(s.root); err != nil {
		return nil, err
	}
	if unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		log("waiting for another run of these tests, which uses %s", s.root)
		if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, s.lock.Close())
		}
	}
	return s, s.removeUnused()
}

// Close lets other processes open the store.
func (s *Store) Close() error { return s.lock.Close() }

// directory returns the directory for the contents that the parts describe, and marks it as used.
func (s *Store) directory(kind string, parts ...[]byte) (string, error) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	dir := filepath.Join(s.root, kind+"-"+hex.EncodeToString(h.Sum(nil))[:16])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	now := time.Now()
	return dir, os.Chtimes(dir, now, now)
}

func (s *Store) removeUnused() error {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < unused {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.root, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Packages returns a directory with the unpacked packages and their dependencies. Remove the
// directory to get newer packages.
func (s *Store) Packages(ctx context.Context, packages ...string) (string, error) {
	dir, err := s.directory("debian", []byte(strings.Join(packages, " ")))
	if err != nil {
		return "", err
	}
	root := filepath.Join(dir, "root")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	s.log("unpacking Debian packages: %s", strings.Join(packages, " "))
	making, err := os.MkdirTemp(dir, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(making)
	debs, err := debian.Download(ctx, making, packages...)
	if err != nil {
		return "", err
	}
	unpacked := filepath.Join(making, "root")
	if err := debian.Unpack(ctx, unpacked, debs...); err != nil {
		return "", err
	}
	if err := os.Rename(unpacked, root); err != nil {
		return "", fmt.Errorf("keep the unpacked packages: %w", err)
	}
	return root, nil
}
