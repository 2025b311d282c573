package conformance

import (
	"os"
	"path/filepath"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// secret writes a secret to a file.
func (s *suite) secret(name, text string, mode os.FileMode) string {
	s.Helper()
	dir, err := filepath.Abs(s.env.Dir)
	require.NoError(s, err)
	path := filepath.Join(dir, s.prefix+name)
	require.NoError(s, os.WriteFile(path, []byte(text), 0o600))
	s.Cleanup(func() { _ = os.Remove(path) })
	require.NoError(s, os.Chmod(path, mode))
	return path
}

// psk is a well-formed TLS pre-shared key from SPDK's documentation.
const psk = "NVMeTLSkey-1:01:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:"

func testKeys(s *suite) {
	if s.before("v24.05") {
		s.fails(noMethod, "keyring_get_keys", nil)
		s.fails(noMethod, "keyring_file_add_key", P{"name": "k", "path": "/nope"})
		return
	}
	keys := func() map[string]spdkrpc.KeyringKey {
		s.Helper()
		var list []spdkrpc.KeyringKey
		s.get(&list, "keyring_get_keys", nil)
		all := map[string]spdkrpc.KeyringKey{}
		for _, k := range list {
			if !k.Removed {
				all[k.Name] = k
			}
		}
		return all
	}
	path := s.secret("k", "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", 0o600)
	k1, k2, k3 := s.name("k1"), s.name("k2"), s.name("k3")
	key := func(name, path string) P { return P{"name": name, "path": path} }
	for _, name := range []string{k1, k2, k3} {
		s.undo("keyring_file_remove_key", P{"name": name})
	}
	s.ok("keyring_file_add_key", key(k1, path))
	assert.Equal(s, spdkrpc.KeyringKey{Name: k1, Module: "keyring_file", Refcnt: 1, Path: &path}, keys()[k1])
	s.fails(exists, "keyring_file_add_key", key(k1, path))
	s.ok("keyring_file_add_key", key(k2, path))
	s.fails(noEntry, "keyring_file_add_key", key(k3, path+".missing"))
	s.fails(notPermitted, "keyring_file_add_key", key(k3, s.secret("open", "x", 0o644)))
	s.fails(notPermitted, "keyring_file_add_key", key(k3, s.secret("group", "x", 0o660)))
	s.fails(notPermitted, "keyring_file_add_key", key(k3, "relative/path"))
	s.fails(invalidParams, "keyring_file_add_key", P{"name": k3})
	assert.NotContains(s, keys(), k3)
	s.ok("keyring_file_add_key", key(k3, s.secret("psk", psk, 0o400)))
	s.fails(noKey, "keyring_file_remove_key", P{"name": s.name("nobody")})

	nqn, h1, h2 := s.subsystem("a"), s.nqn("h1"), s.nqn("h2")
	host := func(h string, more P) P {
		p := P{"nqn": nqn, "host": h}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	s.fails(invalidParams, "nvmf_subsystem_add_host", host(h1, P{"dhchap_key": s.name("nobody")}))
	s.fails(internalError, "nvmf_subsystem_add_host", host(h1, P{"dhchap_ctrlr_key": k2}))
	s.fails(internalError, "nvmf_subsystem_add_host", host(h1, P{"psk": s.name("nobody")}))
	// The file of key k1 does not contain a PSK.
	s.fails(internalError, "nvmf_subsystem_add_host", host(h1, P{"psk": k1}))
	assert.Empty(s, s.describe(nqn).Hosts)
	s.ok("nvmf_subsystem_add_host", host(h1, P{"dhchap_key": k1, "dhchap_ctrlr_key": k2}))
	assert.Equal(s, []spdkrpc.NVMfSubsystemHost{{NQN: h1, DHCHAPKey: &k1, DHCHAPCtrlrKey: &k2}}, s.describe(nqn).Hosts)
	assert.EqualValues(s, 2, keys()[k1].Refcnt)
	s.ok("nvmf_subsystem_add_host", host(h2, P{"psk": k3}))

	if !s.before("v24.09") {
		s.ok("nvmf_subsystem_set_keys", host(h1, P{"dhchap_key": k2}))
		assert.EqualValues(s, 1, keys()[k1].Refcnt)
		s.fails(invalidParams, "nvmf_subsystem_set_keys", host(h1, P{"dhchap_key": s.name("nobody")}))
		s.fails(invalidValue, "nvmf_subsystem_set_keys", host(s.nqn("nobody"), P{"dhchap_key": k1}))
		s.fails(invalidValue, "nvmf_subsystem_set_keys", host(h1, P{"dhchap_ctrlr_key": k1}))
		s.fails(invalidParams, "nvmf_subsystem_set_keys", P{"nqn": s.nqn("nobody"), "host": h1})
		s.ok("nvmf_subsystem_set_keys", host(h1, nil))
		s.ok("nvmf_subsystem_set_keys", host(h1, P{"dhchap_key": k1}))
	}
	s.ok("keyring_file_remove_key", P{"name": k1}) // succeeds although the key is in use
	assert.NotContains(s, keys(), k1)
	for _, h := range s.describe(nqn).Hosts {
		if h.NQN == h1 {
			assert.Equal(s, k1, *h.DHCHAPKey, "existing users keep the key")
		}
	}
	s.fails(noKey, "keyring_file_remove_key", P{"name": k1})
	s.ok("nvmf_delete_subsystem", P{"nqn": nqn})
	assert.EqualValues(s, 1, keys()[k2].Refcnt)
}

func testCrypto(s *suite) {
	const a, b = "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"
	k := s.name("key")
	key := func(more P) P {
		p := P{"name": k, "cipher": "AES_XTS", "key": a, "key2": b}
		for name, v := range more {
			if p[name] = v; v == nil {
				delete(p, name)
			}
		}
		return p
	}
	s.undo("accel_crypto_key_destroy", P{"key_name": k})
	s.ok("accel_crypto_key_create", key(nil))
	var list []spdkrpc.AccelCryptoKey
	s.get(&list, "accel_crypto_keys_get", P{"key_name": k})
	require.Len(s, list, 1)
	assert.Equal(s, a, list[0].Key)
	assert.Equal(s, b, *list[0].Key2)
	s.fails(invalidParams, "accel_crypto_keys_get", P{"key_name": s.name("nobody")})
	s.fails(invalidParams, "accel_crypto_key_create", key(nil))
	other := s.name("other")
	for _, bad := range []P{
		{"name": other, "key": "abc"}, {"name": other, "key": "zz112233445566778899aabbccddeeff"}, {"name": other, "key2": a}, {"name": other, "key2": nil},
		{"name": other, "cipher": "AES_CBC", "key2": nil},
	} {
		s.fails(invalidParams, "accel_crypto_key_create", key(bad))
	}
	s.fails(parseError, "accel_crypto_key_create", key(P{"name": nil}))

	base, c := s.malloc("base", 8), s.name("crypto")
	s.undo("bdev_crypto_delete", P{"name": c})
	over := func(base, name, key string) P { return P{"base_bdev_name": base, "name": name, "key_name": key} }
	assert.Equal(s, c, s.text("bdev_crypto_create", over(base, c, k)))
	assert.Equal(s, &spdkrpc.BdevDriverCrypto{BaseBdevName: base, Name: c, KeyName: k}, s.bdev(c).DriverSpecific.Crypto)
	assert.True(s, s.bdev(base).Claimed)
	s.fails(exists, "bdev_crypto_create", over(base, c, k))
	s.fails(notPermitted, "bdev_crypto_create", over(base, s.name("c2"), k))
	s.fails(invalidParams, "bdev_crypto_create", over(s.malloc("b2", 8), s.name("c2"), s.name("nobody")))
	s.fails(noDevice, "bdev_crypto_delete", P{"name": base})
	s.fails(noDevice, "bdev_crypto_delete", P{"name": s.name("nobody")})
	s.ok("bdev_crypto_delete", P{"name": c})
	s.gone(c)
	assert.False(s, s.bdev(base).Claimed)
	s.ok("accel_crypto_key_destroy", P{"key_name": k})
	s.fails(invalidParams, "accel_crypto_key_destroy", P{"key_name": k})
}
