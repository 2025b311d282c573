package keys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Ask makes one call to the target.
type Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// A Refusal is an error with an errno, like SPDK's errors, and with a remedy.
type Refusal struct {
	Errno syscall.Errno
	Text  string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(errno syscall.Errno, format string, args ...any) error {
	return &Refusal{errno, fmt.Sprintf(format, args...)}
}

// Keys stores the keys for one target.
type Keys struct {
	store   *serialStore
	changes nameLocks // locks by key name
	callers nameLocks
}

// maxKeys is the maximum number of keys. It is limited because each change lists all keys.
const maxKeys = 4096

// A Share limits how many keys a caller may have. The zero value imposes no limit.
type Share struct {
	Most int
	Has  func(name string) bool // reports whether a key belongs to the caller
}

// check returns a *Refusal if the limit has been reached.
func (s Share) check(files Listing) error {
	if s.Most == 0 {
		return nil
	}
	if n := s.used(files); n >= s.Most {
		return refuse(syscall.ENOSPC, "this tenant has %d keys, and its quota is %d: remove some (spdkgate_key_remove), or ask the administrator of this proxy for a larger quota (quota.keys)", n, s.Most)
	}
	return nil
}

// used returns how many keys belong to the caller.
func (s Share) used(files Listing) (n int) {
	for _, f := range files.Files {
		if s.Has(f.Name) {
			n++
		}
	}
	return n
}

// Used returns how many keys belong to a caller, as Add counts them.
func (k *Keys) Used(share Share) (int, error) {
	files, err := k.store.List()
	return share.used(files), err
}

// New returns the Keys in a Store.
func New(store Store) *Keys { return &Keys{store: &serialStore{store: store}} }

// Acquire waits until no other change by the same caller is in progress. release ends the change. A
// caller's changes run one at a time, so that many of them do not delay other callers.
func (k *Keys) Acquire(ctx context.Context, caller string) (release func(), err error) {
	return k.callers.acquire(ctx, caller)
}

// Add stores a secret and registers it under a name. It writes the file first, so that a registered
// key always has a file. Add may be repeated with the same secret. The caller must have called
// Acquire, so that the number of keys that count against share cannot change.
func (k *Keys) Add(ctx context.Context, ask Ask, share Share, name, secret string) error {
	if err := CheckSecret(secret); err != nil {
		return refuse(syscall.EINVAL, "%s", err)
	}
	release, err := k.changes.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	files, err := k.store.List()
	if err != nil {
		return err
	}
	if len(files.Files) >= maxKeys && !files.Has(name) {
		return refuse(syscall.ENOSPC, "there are %d keys, which is the limit: remove some (spdkgate_key_remove)", len(files.Files))
	}
	if !files.Has(name) {
		if err := share.check(files); err != nil {
			return err
		}
	}
	known, err := registered(ctx, ask, name)
	if err != nil {
		return err
	}
	if known != nil && !placed(known, files) {
		return refuse(syscall.EEXIST, "a key with this name already exists, but was not added through this proxy: choose another name")
	}
	outcome, err := k.store.Place(name, secret)
	switch {
	case err != nil:
		return err
	case outcome == Differs:
		return refuse(syscall.EEXIST, "a key with this name already exists with a different secret: remove it first (spdkgate_key_remove), or choose another name")
	case known != nil:
		return nil // the key was already registered
	}
	_, err = ask(ctx, "keyring_file_add_key", map[string]any{"name": name, "path": files.Path(name)})
	if err == nil {
		return nil
	}
	var answer *spdkrpc.Error
	if outcome == Placed && errors.As(err, &answer) && answer.Code != 0 && spdkrpc.KindOf(err) != spdkrpc.OutcomeUnknown {
		err = errors.Join(err, k.store.Remove(name)) // SPDK refused the key, so the file is unused
	}
	if answer != nil && answer.Code == -int(syscall.EPERM) {
		return refuse(syscall.EPERM, "spdk_tgt refused the file: it must belong to the user that spdk_tgt runs as; see docs/restart.md")
	}
	return err
}

// Remove removes a key from the keyring, and then removes its file. It also completes an
// interrupted removal.
func (k *Keys) Remove(ctx context.Context, ask Ask, name string) error {
	release, err := k.changes.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	files, err := k.store.List()
	if err != nil {
		return err
	}
	known, err := registered(ctx, ask, name)
	switch {
	case err != nil:
		return err
	case known == nil && !files.Has(name):
		return refuse(syscall.ENOKEY, "no such key")
	case known == nil:
		return k.store.Remove(name)
	case !placed(known, files):
		return refuse(syscall.EINVAL, "this key was not added through this proxy: remove it with the counterpart of the method that added it")
	case known.Refcnt > 1:
		return refuse(syscall.EBUSY, "the key is in use: remove the hosts that use it first, or give them another one (nvmf_subsystem_set_keys)")
	}
	if _, err := ask(ctx, "keyring_file_remove_key", map[string]any{"name": name}); err != nil {
		return err
	}
	return k.store.Remove(name)
}

// sweepAfter is the age from which a file without a registered key counts as a leftover.
const sweepAfter = time.Hour

// Sweep removes files that no registered key uses and that are not needed. Such files remain if a
// call was interrupted and not repeated. Sweep returns the names of the files' keys.
func (k *Keys) Sweep(ctx context.Context, ask Ask, needed func(path string) (bool, error)) (removed []string, err error) {
	candidates, err := k.leftOver(ctx, ask, "", needed)
	for _, name := range candidates {
		if err != nil {
			break
		}
		var is bool
		if is, err = k.sweep(ctx, ask, name, needed); is && err == nil {
			removed = append(removed, name)
		}
	}
	return removed, err
}

// sweep removes the file of a key that is no longer registered. It first locks the key's name, and
// then checks again that the file is not needed.
func (k *Keys) sweep(ctx context.Context, ask Ask, name string, needed func(path string) (bool, error)) (removed bool, err error) {
	release, err := k.changes.acquire(ctx, name)
	if err != nil {
		return false, err
	}
	defer release()
	still, err := k.leftOver(ctx, ask, name, needed)
	if err != nil || len(still) == 0 {
		return false, err
	}
	return true, k.store.Remove(name)
}

// leftOver returns the names of keys whose files are leftovers. If only is not "", it considers
// only that key.
func (k *Keys) leftOver(ctx context.Context, ask Ask, only string, needed func(path string) (bool, error)) (names []string, err error) {
	files, err := k.store.List()
	if err != nil || len(files.Files) == 0 {
		return nil, err
	}
	list, err := keyring(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, f := range files.Files {
		path := files.Path(f.Name)
		inRing := slices.ContainsFunc(list, func(key spdkrpc.KeyringKey) bool {
			// Compare names as well, because SPDK does not report the path of a removed key that is
			// still in use.
			return key.Name == f.Name || key.Path != nil && *key.Path == path
		})
		if inRing || time.Since(f.Made) < sweepAfter || only != "" && f.Name != only {
			continue
		}
		is, err := needed(path)
		if err != nil {
			return nil, err
		}
		if !is {
			names = append(names, f.Name)
		}
	}
	return names, nil
}

func keyring(ctx context.Context, ask Ask) (list []spdkrpc.KeyringKey, err error) {
	text, err := ask(ctx, "keyring_get_keys", nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("keyring_get_keys: %w", err)
	}
	return list, nil
}

// registered returns the key with this name, or nil if there is no such key or it has been removed.
func registered(ctx context.Context, ask Ask, name string) (*spdkrpc.KeyringKey, error) {
	list, err := keyring(ctx, ask)
	for _, key := range list {
		if key.Name == name && !key.Removed {
			return &key, err
		}
	}
	return nil, err
}

// placed reports whether this package stored a registered key.
func placed(key *spdkrpc.KeyringKey, files Listing) bool {
	return key.Path != nil && *key.Path == files.Path(key.Name)
}
