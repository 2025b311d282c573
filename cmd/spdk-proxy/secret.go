package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// printSecret writes a line that other users must not read. If standard output is a file that the
// shell created for `> FILE`, the usual umask lets every user read it, so printSecret first changes
// the file's mode to 0600. A file that other users cannot access keeps its mode, because its group
// may need to read it.
func printSecret(w io.Writer, secret string) error {
	if f, ok := printable.Raw(w).(*os.File); ok {
		info, err := f.Stat()
		if err == nil && openToOthers(info) {
			err = f.Chmod(0o600)
		}
		if err != nil {
			return fmt.Errorf("remove other users' access to %s: %w: nothing was written; use a file that you own", f.Name(), err)
		}
	}
	_, err := fmt.Fprintln(w, secret)
	return err
}

// openToOthers reports whether every user of this host can access a file. Access by the file's
// group is permitted, because the group may need to read it.
func openToOthers(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0
}

// openSecret opens a file that contains a secret. It refuses a file that every user of this host
// can access. SPDK additionally refuses key files that are accessible to their group.
func openSecret(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && openToOthers(info) {
		err = fmt.Errorf("every user of this host may access %s, so its secret may be known: put another secret into a file that only you can access (umask 077), and replace the old one wherever it is used", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// replaceSecretFile replaces the contents of a file with a line. On failure, the file is unchanged.
// An existing file keeps its owner, group and mode, except that other users lose access.
func replaceSecretFile(path, secret string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w: the file is unchanged", path, err)
		}
	}()
	old, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.Mode().IsRegular():
		return errors.New("it is not a regular file")
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = fmt.Fprintln(f, secret)
	if err == nil && old != nil {
		is := old.Sys().(*syscall.Stat_t)
		err = errors.Join(f.Chown(int(is.Uid), int(is.Gid)), f.Chmod(old.Mode().Perm()&^0o007))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
