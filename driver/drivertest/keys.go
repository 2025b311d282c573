package drivertest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A KeyPlacer simulates the proxy's methods for keys, which SPDK lacks. It passes all other calls
// on to Caller. A KeyPlacer is safe for concurrent use.
type KeyPlacer struct {
	spdkrpc.Caller
	Dir string // directory for key files
	// Info returns the response to spdkgate_target_get_info. If Info is nil or returns nil, the
	// simulated proxy does not have the method.
	Info func() *spdkrpc.ProxyTargetInfo
	mu   sync.Mutex
}

// Call implements [spdkrpc.Caller].
func (k *KeyPlacer) Call(ctx context.Context, method string, params, result any) error {
	if method == "spdkgate_target_get_info" && k.Info != nil {
		if info := k.Info(); info != nil {
			text, err := json.Marshal(info)
			if err != nil {
				return err
			}
			return json.Unmarshal(text, result)
		}
	}
	if method != "spdkgate_key_add" && method != "spdkgate_key_remove" {
		return k.Caller.Call(ctx, method, params, result)
	}
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var p spdkrpc.SpdkgateKeyAddParams
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if method == "spdkgate_key_add" {
		err = k.add(ctx, p)
	} else {
		err = k.remove(ctx, p.Name)
	}
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal([]byte("true"), result)
}

func (k *KeyPlacer) path(name string) string { return filepath.Join(k.Dir, name+".key") }

func keyError(method string, errno syscall.Errno) error {
	kind := map[syscall.Errno]spdkrpc.Kind{syscall.EEXIST: spdkrpc.Exists, syscall.EBUSY: spdkrpc.Busy}[errno]
	if kind == "" {
		kind = spdkrpc.Failed
	}
	return &spdkrpc.Error{Method: method, Kind: kind, Code: -int(errno), Message: errno.Error()}
}

func (k *KeyPlacer) add(ctx context.Context, p spdkrpc.SpdkgateKeyAddParams) error {
	there, err := os.ReadFile(k.path(p.Name))
	if err == nil && string(there) != p.Secret {
		return keyError("spdkgate_key_add", syscall.EEXIST)
	}
	if err != nil {
		if err := os.WriteFile(k.path(p.Name), []byte(p.Secret), 0o600); err != nil {
			return err
		}
	}
	key, err := k.registered(ctx, p.Name)
	if err != nil || key != nil {
		return err
	}
	return spdkrpc.NewClient(k.Caller).KeyringFileAddKey(ctx, spdkrpc.KeyringFileAddKeyParams{Name: p.Name, Path: k.path(p.Name)})
}

func (k *KeyPlacer) remove(ctx context.Context, name string) error {
	key, err := k.registered(ctx, name)
	switch {
	case err != nil:
		return err
	case key == nil:
		return keyError("spdkgate_key_remove", syscall.ENOKEY)
	case key.Refcnt > 1:
		return keyError("spdkgate_key_remove", syscall.EBUSY)
	}
	if err := spdkrpc.NewClient(k.Caller).KeyringFileRemoveKey(ctx, spdkrpc.KeyringFileRemoveKeyParams{Name: name}); err != nil {
		return err
	}
	return os.Remove(k.path(name))
}

func (k *KeyPlacer) registered(ctx context.Context, name string) (*spdkrpc.KeyringKey, error) {
	all, err := spdkrpc.NewClient(k.Caller).KeyringGetKeys(ctx)
	i := slices.IndexFunc(all, func(key spdkrpc.KeyringKey) bool { return key.Name == name && !key.Removed })
	if err != nil || i < 0 {
		return nil, err
	}
	return &all[i], nil
}
