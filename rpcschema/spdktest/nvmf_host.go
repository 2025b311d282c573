package spdktest

import (
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A host is an NVMe-oF host that may connect to a subsystem, together with its authentication keys.
type host struct {
	nqn           string
	key, ctrlrKey *key // DH-HMAC-CHAP
	psk           string
}

func init() {
	confirm("nvmf_subsystem_add_host", (*engine).nvmfAddHost)
	confirm("nvmf_subsystem_remove_host", (*engine).nvmfRemoveHost)
	confirm("nvmf_subsystem_set_keys", (*engine).nvmfSetKeys)
	confirm("nvmf_subsystem_allow_any_host", (*engine).nvmfAllowAnyHost)
}

func (s *subsystem) host(nqn string) *host {
	i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.nqn == nqn })
	if i < 0 {
		return nil
	}
	return s.hosts[i]
}

func (e *engine) nvmfAddHost(p spdkrpc.NVMfSubsystemAddHostParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	if s.host(p.Host) != nil && e.before("v24.09") {
		return nil // already admitted: the call succeeds
	}
	h := &host{nqn: p.Host, psk: value(p.PSK)}
	if err := e.takeKeys(h, p.DHCHAPKey, p.DHCHAPCtrlrKey, errInternal); err != nil {
		return err
	}
	if !rpcschema.ValidNQN(p.Host) || s.host(p.Host) != nil || p.PSK != nil && !e.usablePSK(*p.PSK) {
		h.dropKeys()
		return errInternal
	}
	s.hosts = slices.Insert(s.hosts, 0, h)
	return e.export(s)
}

// takeKeys sets a host's keys. If only a controller key is given, it returns the error alone.
func (e *engine) takeKeys(h *host, name, ctrlrName *string, alone error) error {
	for _, k := range []struct {
		name *string
		into **key
	}{{name, &h.key}, {ctrlrName, &h.ctrlrKey}} {
		if k.name == nil {
			continue
		}
		if *k.into = e.key(*k.name); *k.into == nil {
			return errInvalidParams
		}
	}
	if h.ctrlrKey != nil && h.key == nil {
		return alone
	}
	for _, k := range []*key{h.key, h.ctrlrKey} {
		if k != nil {
			k.refs++
		}
	}
	return nil
}

func (h *host) dropKeys() {
	for _, k := range []*key{h.key, h.ctrlrKey} {
		if k != nil {
			k.refs--
		}
	}
	h.key, h.ctrlrKey = nil, nil
}

// usablePSK reports whether psk names a TLS pre-shared key in the interchange format. Up to v24.01,
// psk is the path of the key's file.
func (e *engine) usablePSK(psk string) bool {
	path := psk
	if !e.before("v24.05") {
		k := e.key(psk)
		if k == nil {
			return false
		}
		path = k.path
	}
	text, err := os.ReadFile(path)
	return err == nil && strings.HasPrefix(string(text), "NVMeTLSkey-1:")
}

func (e *engine) nvmfRemoveHost(p spdkrpc.NVMfSubsystemRemoveHostParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	h := s.host(p.Host)
	if h == nil {
		return errInternal
	}
	h.dropKeys()
	s.hosts = slices.DeleteFunc(s.hosts, func(o *host) bool { return o == h })
	return e.export(s)
}

func (e *engine) nvmfSetKeys(p spdkrpc.NVMfSubsystemSetKeysParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	h, next := s.host(p.Host), &host{}
	if err := e.takeKeys(next, p.DHCHAPKey, p.DHCHAPCtrlrKey, errno(syscall.EINVAL)); err != nil {
		return err
	}
	if h == nil {
		next.dropKeys()
		return errno(syscall.EINVAL)
	}
	h.dropKeys()
	h.key, h.ctrlrKey = next.key, next.ctrlrKey
	return nil
}

func (e *engine) nvmfAllowAnyHost(p spdkrpc.NVMfSubsystemAllowAnyHostParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	s.anyHost = p.AllowAnyHost
	return e.export(s)
}

func (h *host) describe() spdkrpc.NVMfSubsystemHost {
	out := spdkrpc.NVMfSubsystemHost{NQN: h.nqn}
	if h.key != nil {
		out.DHCHAPKey = new(h.key.name)
	}
	if h.ctrlrKey != nil {
		out.DHCHAPCtrlrKey = new(h.ctrlrKey.name)
	}
	return out
}
