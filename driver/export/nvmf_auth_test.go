package export_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	oneKey   = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	otherKey = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
)

func withKeys(t *testing.T, h export.Host, host, target string) export.Host {
	t.Helper()
	var err error
	h.Keys, err = hostauth.Read(hostauth.DHCHAP, map[string]string{"dhchap-key": host, "dhchap-ctrl-key": target}, "")
	require.NoError(t, err)
	return h
}

// newKeysFixture returns a fixture whose target has the proxy's methods for keys.
func newKeysFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t, export.TCP, "")
	if !f.authenticates(t) {
		t.Skip("this release does not authenticate hosts")
	}
	f.fault.Caller = &drivertest.KeyPlacer{Caller: f.fault.Caller, Dir: t.TempDir()}
	return f
}

func (f *fixture) authenticates(t *testing.T) bool {
	t.Helper()
	r, err := f.rpc.Release(t.Context())
	require.NoError(t, err)
	return !r.Before(rpcschema.MustRelease("v24.09"))
}

// keys returns the names of the keys on the target, with the number of hosts that use each key.
func (f *fixture) keys(t *testing.T) map[string]int {
	t.Helper()
	all, err := f.rpc.KeyringGetKeys(t.Context())
	require.NoError(t, err)
	names := map[string]int{}
	for _, k := range all {
		if !k.Removed {
			names[k.Name] = int(k.Refcnt) - 1
		}
	}
	return names
}

func keyName(secret string) string { return "csi-" + hostauth.NewSecret(secret).Name() }

func hostsWithKeys(sub spdkrpc.NVMfSubsystem) map[string][2]string {
	hosts := map[string][2]string{}
	for _, h := range sub.Hosts {
		var keys [2]string
		for i, k := range []*string{h.DHCHAPKey, h.DHCHAPCtrlrKey} {
			if k != nil {
				keys[i] = *k
			}
		}
		hosts[h.NQN] = keys
	}
	return hosts
}

// A host with keys is admitted under all of its names with these keys. New keys replace the old
// keys. Exports share keys, which are removed when the last export is withdrawn.
func TestHostsMustAuthenticate(t *testing.T) {
	f := newKeysFixture(t)
	id, second := f.bdev(t), f.bdev(t)
	plain := drivertest.MultipathHost("a")
	h := withKeys(t, plain, oneKey, "")
	require.NoError(t, admit(t.Context(), f.Service, id, h))
	one, other := keyName(oneKey), keyName(otherKey)
	assert.Equal(t, map[string][2]string{h.NQN: {one}, h.Multipath: {one}}, hostsWithKeys(f.subsystem(t, id)))
	assert.Equal(t, map[string]int{one: 2}, f.keys(t))

	require.NoError(t, admit(t.Context(), f.Service, second, h))
	assert.Equal(t, map[string]int{one: 4}, f.keys(t))
	require.NoError(t, admit(t.Context(), f.Service, id, h), "again")
	assert.Equal(t, map[string]int{one: 4}, f.keys(t))

	both := withKeys(t, plain, otherKey, oneKey)
	require.NoError(t, admit(t.Context(), f.Service, id, both))
	assert.Equal(t, map[string][2]string{h.NQN: {other, one}, h.Multipath: {other, one}}, hostsWithKeys(f.subsystem(t, id)))
	require.NoError(t, admit(t.Context(), f.Service, second, withKeys(t, plain, otherKey, "")))
	assert.Equal(t, map[string]int{one: 2, other: 4}, f.keys(t))
	require.NoError(t, admit(t.Context(), f.Service, id, withKeys(t, plain, otherKey, "")))
	assert.Equal(t, map[string]int{other: 4}, f.keys(t), "the key that is no longer used is removed")

	require.NoError(t, f.Withdraw(t.Context(), id, &plain))
	assert.Equal(t, map[string]int{other: 2}, f.keys(t))
	require.NoError(t, f.Withdraw(t.Context(), second, nil))
	assert.Empty(t, f.keys(t))
}

// A host that was admitted without keys loses its connections when authentication becomes required.
func TestAdmissionWithoutKeysIsReplaced(t *testing.T) {
	f := newKeysFixture(t)
	id := f.bdev(t)
	h := drivertest.Host("a")
	require.NoError(t, admit(t.Context(), f.Service, id, h))
	removed := false
	f.fault.Caller = &drivertest.FirstCall{Caller: f.fault.Caller, Method: "nvmf_subsystem_remove_host", After: func(context.Context) { removed = true }}
	require.NoError(t, admit(t.Context(), f.Service, id, withKeys(t, h, oneKey, "")))
	assert.True(t, removed)
	assert.Equal(t, map[string][2]string{h.NQN: {keyName(oneKey)}}, hostsWithKeys(f.subsystem(t, id)))
}

// Regardless of which RPC of a call fails, the volume is not exported to hosts without
// authentication. A retry succeeds, and Withdraw leaves no keys behind.
func TestInterruptedCallsNeverSkipAuthentication(t *testing.T) {
	f := newKeysFixture(t)
	id := f.bdev(t)
	for how, inject := range map[string]func(n int){
		"dies before the call": func(n int) { f.fault.FailCall(n, false, true) },
		"dies after the call":  func(n int) { f.fault.FailCall(n, true, true) },
		"refused":              func(n int) { f.fault.RefuseCall(n) },
	} {
		executed := how == "dies after the call"
		for n := 1; ; n++ {
			h := withKeys(t, drivertest.MultipathHost("a"), oneKey, otherKey)
			inject(n)
			err := admit(t.Context(), f.Service, id, h)
			failed := f.fault.FailedMethod()
			f.fault.Reset()
			if failed == "" {
				require.NoError(t, err)
				assert.Greater(t, n, 8)
				require.NoError(t, f.Withdraw(t.Context(), id, &h))
				break
			}
			if err == nil {
				keys := [2]string{keyName(oneKey), keyName(otherKey)}
				assert.Equal(t, map[string][2]string{h.NQN: keys, h.Multipath: keys}, hostsWithKeys(f.subsystem(t, id)), "%s: call %d, %s", how, n, failed)
			}
			if how == "refused" && err != nil {
				assert.ErrorContains(t, err, "injected failure", "call %d, %s", n, failed)
			}
			subs, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
			require.NoError(t, err)
			for _, sub := range subs {
				if !strings.HasPrefix(sub.NQN, export.NQN("")) {
					continue
				}
				assert.False(t, sub.AllowAnyHost)
				for _, x := range sub.Hosts {
					assert.NotNil(t, x.DHCHAPKey, "call %d, %s", n, failed)
				}
			}
			if n%2 == 0 {
				require.NoError(t, admit(t.Context(), f.Service, id, h), "call %d, %s", n, failed)
			}
			for m := 1; ; m++ { // fail each RPC of the withdrawal
				f.fault.FailCall(m, executed, true)
				err := f.Withdraw(t.Context(), id, &h)
				done := f.fault.FailedMethod() == ""
				f.fault.Reset()
				if done {
					require.NoError(t, err)
					break
				}
			}
			assert.Empty(t, f.keys(t), "call %d, %s", n, failed)
		}
	}
}

// Another controller may remove a key after this call has added it and before a host uses it.
func TestKeyRemovedDuringTheCallIsAddedAgain(t *testing.T) {
	f := newKeysFixture(t)
	id := f.bdev(t)
	h := withKeys(t, drivertest.Host("a"), oneKey, "")
	placer := f.fault.Caller
	f.fault.Caller = &drivertest.FirstCall{Caller: placer, Method: "spdkgate_key_add", After: func(ctx context.Context) {
		assert.NoError(t, spdkrpc.NewClient(placer).SpdkgateKeyRemove(ctx, spdkrpc.SpdkgateKeyRemoveParams{Name: keyName(oneKey)}))
	}}
	require.NoError(t, admit(t.Context(), f.Service, id, h))
	assert.Equal(t, map[string]int{keyName(oneKey): 1}, f.keys(t))
}

// A target without support for authentication exports nothing to hosts that must authenticate.
func TestTargetsWithoutAuthenticationExportNothing(t *testing.T) {
	h := drivertest.Host("a")
	t.Run("release", func(t *testing.T) {
		f := newFixture(t, export.TCP, "v24.01")
		if f.authenticates(t) {
			t.Skip("the real target's release authenticates hosts")
		}
		err := admit(t.Context(), f.Service, f.bdev(t), withKeys(t, h, oneKey, ""))
		require.ErrorIs(t, err, export.ErrNoAuthentication)
		require.ErrorContains(t, err, "v24.01")
		subs, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
		require.NoError(t, err)
		assert.Len(t, subs, 1, "the discovery subsystem alone")
	})
	t.Run("proxy without keys", func(t *testing.T) {
		f := newFixture(t, export.TCP, "") // SPDK itself lacks the proxy's methods
		if !f.authenticates(t) {
			t.Skip("this release does not authenticate hosts")
		}
		id := f.bdev(t)
		err := admit(t.Context(), f.Service, id, withKeys(t, h, oneKey, ""))
		require.ErrorIs(t, err, export.ErrNoAuthentication)
		require.ErrorContains(t, err, "target.keys")
		assert.NotContains(t, err.Error(), oneKey)
		assert.Empty(t, f.subsystem(t, id).Hosts)
		require.NoError(t, f.Withdraw(t.Context(), id, &h))
	})
	t.Run("transport", func(t *testing.T) {
		f := newFixture(t, export.ISCSI, "")
		err := admit(t.Context(), f.Service, f.bdev(t), withKeys(t, h, oneKey, ""))
		require.ErrorIs(t, err, export.ErrNoAuthentication)
		require.ErrorContains(t, err, "chap")
	})
}
