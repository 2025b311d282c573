package export

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// DH-HMAC-CHAP keys are files on the target's host that the proxy writes. The name of a key is
// derived from its secret, so exports with the same secret share a key, and a changed secret
// becomes an additional key. The driver adds a key when the target reports that no key with this
// name exists, and removes it after the last export that uses it has ended. SPDK counts the uses of
// each key.

// DefaultKeyPrefix is the default of [Config.KeyPrefix].
const DefaultKeyPrefix = "csi-"

var keyPrefix = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.@+=-]{0,59})?$`)

// IsKeyPrefix reports whether a string is a valid prefix for key names.
func IsKeyPrefix(text string) bool { return keyPrefix.MatchString(text) }

// Authenticates returns the authentication method that the target's transport supports.
func (c Config) Authenticates() hostauth.Method {
	if c.Transport == ISCSI {
		return hostauth.CHAP
	}
	return hostauth.DHCHAP
}

// CheckAuthenticates fails with [ErrNoAuthentication] if the target's transport does not support
// method m.
func (c Config) CheckAuthenticates(m hostauth.Method) error {
	if own := c.Authenticates(); m != hostauth.None && m != own {
		return fmt.Errorf("%w by %s: target %s exports over %s: set the class parameter authentication to %s, or use targets of the other type", ErrNoAuthentication, m, c.Name, c.Transport, own)
	}
	return nil
}

func (n nvmf) checkAuthenticates(h Host, release rpcschema.Release) error {
	if h.Keys == nil {
		return nil
	}
	if err := n.CheckAuthenticates(h.Keys.Method); err != nil {
		return err
	}
	if !release.Has(rpcschema.ChangesHostKeys) {
		return fmt.Errorf("%w: target %s runs SPDK %s, and DH-HMAC-CHAP needs %s or later: the volume was not exported", ErrNoAuthentication, n.Name, release, rpcschema.ChangesHostKeys.Since())
	}
	return nil
}

// keyNames contains the names of a host's keys on the target. If the host has no keys, the names
// are nil.
type keyNames struct{ host, target *string }

func (n nvmf) keyNames(k *hostauth.Keys) (names keyNames) {
	if k == nil || k.Method != hostauth.DHCHAP {
		return names
	}
	names.host = new(n.KeyPrefix + k.Host.Name())
	if k.Both() {
		names.target = new(n.KeyPrefix + k.Target.Name())
	}
	return names
}

// admission returns the step that makes a subsystem admit a host under one of its names, with its
// keys. sub is the subsystem before the admission.
func (n nvmf) admission(ctx context.Context, nqn, hostNQN string, sub *spdkrpc.NVMfSubsystem, h Host) (do func() error, done func(*spdkrpc.NVMfSubsystem) bool) {
	names := n.keyNames(h.Keys)
	add := func() error {
		return n.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: nqn, Host: hostNQN, DHCHAPKey: names.host, DHCHAPCtrlrKey: names.target})
	}
	if h.Keys == nil {
		return add, func(sub *spdkrpc.NVMfSubsystem) bool { return admits(sub, hostNQN) }
	}
	do = func() error { return n.withKeys(ctx, h.Keys, add) }
	if now := hostIn(sub, hostNQN); now != nil && now.DHCHAPKey != nil {
		do = func() error {
			return n.withKeys(ctx, h.Keys, func() error {
				return n.rpc.NVMfSubsystemSetKeys(ctx, spdkrpc.NVMfSubsystemSetKeysParams{NQN: nqn, Host: hostNQN, DHCHAPKey: names.host, DHCHAPCtrlrKey: names.target})
			})
		}
	} else if now != nil {
		// A new key applies only to new connections, so the existing connections without a key must
		// end.
		do = func() error {
			if err := n.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: nqn, Host: hostNQN}); err != nil {
				return err
			}
			return n.withKeys(ctx, h.Keys, add)
		}
	}
	return do, func(sub *spdkrpc.NVMfSubsystem) bool {
		x := hostIn(sub, hostNQN)
		return x != nil && same(x.DHCHAPKey, names.host) && same(x.DHCHAPCtrlrKey, names.target)
	}
}

func hostIn(sub *spdkrpc.NVMfSubsystem, hostNQN string) *spdkrpc.NVMfSubsystemHost {
	if sub == nil {
		return nil
	}
	i := slices.IndexFunc(sub.Hosts, func(x spdkrpc.NVMfSubsystemHost) bool { return x.NQN == hostNQN })
	if i < 0 {
		return nil
	}
	return &sub.Hosts[i]
}

func same(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// withKeys makes a call that refers to keys. If the target refuses the call because a key is
// missing, withKeys adds the keys and repeats the call. It makes several attempts, because another
// call may remove an unused key before this call refers to it.
func (n nvmf) withKeys(ctx context.Context, k *hostauth.Keys, call func() error) error {
	var err error
	for range 3 {
		if err = call(); !errors.Is(err, spdkrpc.InvalidParams) {
			return err
		}
		if failed := n.placeKeys(ctx, k); failed != nil {
			return failed
		}
	}
	return err
}

func (n nvmf) placeKeys(ctx context.Context, k *hostauth.Keys) error {
	names := n.keyNames(k)
	place := func(name *string, secret hostauth.Secret) error {
		if name == nil {
			return nil
		}
		err := n.rpc.SpdkgateKeyAdd(ctx, spdkrpc.SpdkgateKeyAddParams{Name: *name, Secret: secret.Reveal()})
		if errors.Is(err, spdkrpc.MethodNotFound) {
			return fmt.Errorf("%w: the proxy of target %s cannot store keys: set target.keys in spdk-proxy's configuration (%s)", ErrNoAuthentication, n.Name, err)
		}
		if err != nil {
			return fmt.Errorf("place key %s: %w", *name, err)
		}
		return nil
	}
	if err := place(names.host, k.Host); err != nil {
		return err
	}
	return place(names.target, k.Target)
}

// usesKeys reports whether a host, or any host if h is nil, has keys in a subsystem. It also
// returns true if an interrupted call may have added keys for the host. sub may be nil.
func (n nvmf) usesKeys(sub *spdkrpc.NVMfSubsystem, h *Host) bool {
	return h != nil && n.keyNames(h.Keys).host != nil ||
		sub != nil && slices.ContainsFunc(sub.Hosts, func(x spdkrpc.NVMfSubsystemHost) bool { return x.DHCHAPKey != nil && (h == nil || h.is(x.NQN)) })
}

// An UnusedKey is an unused key of the driver, or, over iSCSI, an unused authentication group. A
// call in flight may be about to use the key or group.
type UnusedKey struct {
	Name string // name of the key; empty for a group
	Tag  int32  // tag of the group
}

// UnusedKeys lists the unused keys on the target. It returns no keys for clients that are not
// allowed to list keys.
func (s *Service) UnusedKeys(ctx context.Context) (unused []UnusedKey, err error) {
	if s.Transport == ISCSI {
		tags, err := iscsi{s}.unusedAuthGroups(ctx)
		for _, tag := range tags {
			unused = append(unused, UnusedKey{Tag: tag})
		}
		return unused, err
	}
	all, err := s.rpc.KeyringGetKeys(ctx)
	if readback.Refused(err) || errors.Is(err, spdkrpc.MethodNotFound) {
		return nil, nil // a client without this permission has added no keys, and releases without a keyring have none
	}
	for _, k := range all {
		if name, ok := strings.CutPrefix(k.Name, s.KeyPrefix); ok && hostauth.IsName(name) && !k.Removed && k.Refcnt <= 1 {
			unused = append(unused, UnusedKey{Name: k.Name})
		}
	}
	return unused, err
}

// RemoveUnusedKey removes a key that UnusedKeys returned, unless the key is now in use.
func (s *Service) RemoveUnusedKey(ctx context.Context, k UnusedKey) error {
	if s.Transport == ISCSI {
		tags, err := iscsi{s}.unusedAuthGroups(ctx)
		if err != nil || !slices.Contains(tags, k.Tag) {
			return err
		}
		if err := s.rpc.ISCSIDeleteAuthGroup(ctx, spdkrpc.ISCSIDeleteAuthGroupParams{Tag: k.Tag}); err != nil {
			return fmt.Errorf("delete authentication group %d: %w", k.Tag, err)
		}
		return nil
	}
	// The proxy refuses to remove a key that is in use.
	if err := s.rpc.SpdkgateKeyRemove(ctx, spdkrpc.SpdkgateKeyRemoveParams{Name: k.Name}); err != nil {
		return fmt.Errorf("remove key %s: %w", k.Name, err)
	}
	return nil
}

// removeUnusedKeys removes all unused keys of the driver, including keys left behind by interrupted
// calls. A key that the proxy refuses to remove remains; spdk-csi doctor reports it.
func (n nvmf) removeUnusedKeys(ctx context.Context) error {
	unused, err := n.UnusedKeys(ctx)
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	for _, k := range unused {
		if err := n.RemoveUnusedKey(ctx, k); err != nil && !readback.Refused(err) && !errors.Is(err, spdkrpc.MethodNotFound) {
			return err
		}
	}
	return nil
}

// keysChanged reports whether a host's keys have changed.
func (h Host) keysChanged(before, now *spdkrpc.NVMfSubsystem) bool {
	if before == nil {
		return false
	}
	return slices.ContainsFunc(before.Hosts, func(x spdkrpc.NVMfSubsystemHost) bool {
		y := hostIn(now, x.NQN)
		return h.is(x.NQN) && x.DHCHAPKey != nil && (y == nil || !same(x.DHCHAPKey, y.DHCHAPKey) || !same(x.DHCHAPCtrlrKey, y.DHCHAPCtrlrKey))
	})
}
