package keys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Ask makes one call to the target.
type Ask func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// A Refusal is an answer like SPDK's own: an errno, and what to do.
type Refusal struct {
	Errno syscall.Errno
	Text  string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(errno syscall.Errno, format string, args ...any) error {
	return &Refusal{errno, fmt.Sprintf(format, args...)}
}

// Keys places the keys of one target.
type Keys struct {
	store Store
	mu    sync.Mutex // one change at a time
}

// New makes Keys.
func New(store Store) *Keys { return &Keys{store: store} }

// Add places a secret, and registers it under a name. The file comes first: a
// registered key always has one. With the same secret it may be repeated.
func (k *Keys) Add(ctx context.Context, ask Ask, name, secret string) error {
	if err := CheckSecret(secret); err != nil {
		return refuse(syscall.EINVAL, "%s", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	files, err := k.store.List()
	if err != nil {
		return err
	}
	known, err := registered(ctx, ask, name)
	if err != nil {
		return err
	}
	if known != nil && !placed(known, files) {
		return refuse(syscall.EEXIST, "a key of this name exists, which was not placed through this proxy: choose another name")
	}
	outcome, err := k.store.Place(name, secret)
	switch {
	case err != nil:
		return err
	case outcome == Differs:
		return refuse(syscall.EEXIST, "a key of this name exists with another secret: remove it first (spdkgate_key_remove), or choose another name")
	case known != nil:
		return nil // it was registered before
	}
	_, err = ask(ctx, "keyring_file_add_key", map[string]any{"name": name, "path": files.Path(name)})
	if err == nil {
		return nil
	}
	var said *spdkrpc.Error
	if outcome == Placed && errors.As(err, &said) && said.Code != 0 && spdkrpc.KindOf(err) != spdkrpc.OutcomeUnknown {
		err = errors.Join(err, k.store.Remove(name)) // SPDK has refused it, so nothing needs the file
	}
	if said != nil && said.Code == -int(syscall.EPERM) {
		return refuse(syscall.EPERM, "spdk_tgt does not take the file: it must belong to the user that spdk_tgt runs as; see docs/restart.md")
	}
	return err
}

// Remove takes a key out of the keyring, and then its file away. What is left of
// a removal that was cut short is removed, too.
func (k *Keys) Remove(ctx context.Context, ask Ask, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
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
		return refuse(syscall.EINVAL, "this key was not placed through this proxy: remove it as it was added")
	case known.Refcnt > 1:
		return refuse(syscall.EBUSY, "the key is in use: remove the hosts that use it first, or give them another one (nvmf_subsystem_set_keys)")
	}
	if _, err := ask(ctx, "keyring_file_remove_key", map[string]any{"name": name}); err != nil {
		return err
	}
	return k.store.Remove(name)
}

// sweepAfter is how old a file must be before it can be left over.
const sweepAfter = time.Hour

// Sweep removes files that no registered key and nothing else needs: those of
// calls that were cut short and never repeated.
func (k *Keys) Sweep(ctx context.Context, ask Ask, needed func(path string) (bool, error)) (removed []string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
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
			// The path of a removed key that is still in use is not told.
			return key.Name == f.Name || key.Path != nil && *key.Path == path
		})
		if inRing || time.Since(f.Made) < sweepAfter {
			continue
		}
		if is, err := needed(path); err != nil || is {
			if err != nil {
				return removed, err
			}
			continue
		}
		if err := k.store.Remove(f.Name); err != nil {
			return removed, err
		}
		removed = append(removed, f.Name)
	}
	return removed, nil
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

// registered finds a key that has not been removed; nil if there is none.
func registered(ctx context.Context, ask Ask, name string) (*spdkrpc.KeyringKey, error) {
	list, err := keyring(ctx, ask)
	for _, key := range list {
		if key.Name == name && !key.Removed {
			return &key, err
		}
	}
	return nil, err
}

// placed says whether a registered key is one of ours.
func placed(key *spdkrpc.KeyringKey, files Listing) bool {
	return key.Path != nil && *key.Path == files.Path(key.Name)
}
