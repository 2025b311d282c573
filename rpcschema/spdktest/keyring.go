package spdktest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A key is a named file that contains a secret. Existing users can still use a key after it has
// been removed.
type key struct {
	name, path string
	refs       int
	removed    bool // the key exists only until its last user releases it
}

func (e *engine) key(name string) *key {
	i := slices.IndexFunc(e.keys, func(k *key) bool { return k.name == name && !k.removed })
	if i < 0 {
		return nil
	}
	return e.keys[i]
}

func init() {
	confirm("keyring_file_add_key", (*engine).keyringFileAddKey)
	confirm("keyring_file_remove_key", (*engine).keyringFileRemoveKey)
	query("keyring_get_keys", (*engine).keyringGetKeys)
}

// keyringFileAddKey accepts only files that are readable by their owner alone.
func (e *engine) keyringFileAddKey(p spdkrpc.KeyringFileAddKeyParams) error {
	if i := strings.IndexByte(p.Name, ':'); i > 0 {
		return errno(syscall.EINVAL)
	}
	if e.key(p.Name) != nil {
		return errno(syscall.EEXIST)
	}
	if !filepath.IsAbs(p.Path) {
		return errno(syscall.EPERM)
	}
	info, err := os.Stat(p.Path)
	var n syscall.Errno
	switch {
	case errors.As(err, &n):
		return errno(n)
	case err != nil:
		return errno(syscall.ENOENT)
	case info.Mode().Perm()&0o077 != 0:
		return errno(syscall.EPERM)
	}
	e.keys = append(e.keys, &key{name: p.Name, path: p.Path, refs: 1})
	return nil
}

func (e *engine) keyringFileRemoveKey(p spdkrpc.KeyringFileRemoveKeyParams) error {
	k := e.key(p.Name)
	if k == nil {
		return errno(syscall.ENOKEY)
	}
	k.removed = true
	e.keys = append(slices.DeleteFunc(e.keys, func(o *key) bool { return o == k }), k)
	k.refs--
	return nil
}

func (e *engine) keyringGetKeys() ([]spdkrpc.KeyringKey, error) {
	e.keys = slices.DeleteFunc(e.keys, func(k *key) bool { return k.refs == 0 })
	list := make([]spdkrpc.KeyringKey, len(e.keys))
	for i, k := range e.keys {
		list[i] = spdkrpc.KeyringKey{Name: k.name, Module: "keyring_file", Removed: k.removed, Refcnt: int32(k.refs)}
		if !k.removed {
			list[i].Path = new(k.path)
		}
	}
	return list, nil
}
