package connect

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

const (
	oneKey   = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	otherKey = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
)

func withKeys(t *testing.T, e Export, host, target string) Export {
	t.Helper()
	e.Authentication = hostauth.DHCHAP
	k, err := hostauth.Read(hostauth.DHCHAP, map[string]string{"dhchap-key": host, "dhchap-ctrl-key": target}, "")
	require.NoError(t, err)
	return e.WithKeys(k)
}

// The printed form of an export does not contain its keys.
func TestExportHidesKeys(t *testing.T) {
	e := withKeys(t, export1, oneKey, otherKey)
	text, err := json.Marshal(e)
	require.NoError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		text = fmt.Appendf(text, verb+verb, e, []any{&e, struct{ e Export }{e}})
	}
	assert.NotContains(t, string(text), oneKey[10:20])
	assert.NotContains(t, string(text), otherKey[10:20])
}

func TestNVMeConnectAuthenticates(t *testing.T) {
	for _, both := range []bool{false, true} {
		k, c := newNVMeKernel(t, true)
		k.file("dev/nvme-fabrics", "transport=%s,dhchap_secret=%s,dhchap_ctrl_secret=%s\n")
		k.exchange = func(string) error {
			k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
			k.namespace(0, 0, 1, "uuid."+uuid1, gib)
			return nil
		}
		e, want := withKeys(t, export1, oneKey, ""), ",dhchap_secret="+oneKey
		if both {
			e, want = withKeys(t, export1, oneKey, otherKey), want+",dhchap_ctrl_secret="+otherKey
		}
		_, err := c.Connect(t.Context(), e)
		require.NoError(t, err)
		assert.Equal(t, []string{"fabrics=" + fabricsOptions(export1, "127.0.0.1", k.host, NVMeOptions{}) + want}, k.log())
	}
}

func TestNVMeConnectWithoutKeysIsRefused(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	e := export1
	e.Authentication = hostauth.DHCHAP
	for _, e := range []Export{e, e.WithKeys(&hostauth.Keys{Method: hostauth.CHAP})} {
		_, err := c.Connect(t.Context(), e)
		require.ErrorIs(t, err, ErrNoKeys)
	}
	e = withKeys(t, e, oneKey, "")
	e.BothAuthenticate = true
	_, err := c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrNoKeys)
	k.file("dev/nvme-fabrics", "transport=%s,traddr=%s\n")
	_, err = c.Connect(t.Context(), withKeys(t, export1, oneKey, ""))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "CONFIG_NVME_HOST_AUTH")
	assert.Empty(t, k.log(), "the kernel was not asked to connect")
}

// A second Connect with other keys replaces only the keys of the export's controllers.
func TestNVMeReplacesKeys(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	k.set(0, "dhchap_secret", oneKey)
	k.set(0, "dhchap_ctrl_secret", "none")
	k.onWrite = func(path, text string) error {
		k.set(0, filepath.Base(path), text)
		return nil
	}
	_, err := c.Connect(t.Context(), withKeys(t, export1, oneKey, ""))
	require.NoError(t, err)
	assert.Empty(t, k.log())
	_, err = c.Connect(t.Context(), withKeys(t, export1, otherKey, ""))
	require.NoError(t, err)
	assert.Equal(t, []string{"sys/class/nvme/nvme0/dhchap_secret=" + otherKey}, k.log())
	_, err = c.Connect(t.Context(), withKeys(t, export1, oneKey, otherKey))
	require.NoError(t, err)
	assert.Equal(t, []string{"sys/class/nvme/nvme0/dhchap_ctrl_secret=" + otherKey, "sys/class/nvme/nvme0/dhchap_secret=" + oneKey}, k.log())

	e := export1
	e.Authentication = hostauth.DHCHAP
	_, err = c.Connect(t.Context(), e)
	require.NoError(t, err, "it is connected: no keys are needed")
	k.onWrite = func(string, string) error { return syscall.EINVAL }
	_, err = c.Connect(t.Context(), withKeys(t, export1, otherKey, ""))
	require.ErrorIs(t, err, syscall.EINVAL)
	assert.NotContains(t, err.Error(), otherKey)
	k.remove("sys/class/nvme/nvme0/dhchap_secret")
	_, err = c.Connect(t.Context(), withKeys(t, export1, otherKey, ""))
	require.ErrorIs(t, err, ErrUnsupported)
}

// The error for a failed connection states which side must authenticate, and never contains a key.
func TestNVMeAuthenticationFailureIsExplained(t *testing.T) {
	port := nvmeTargetThatAuthenticates(t)
	export := Export{Transport: TCP, Address: "127.0.0.1", Port: port, NQN: nqn1}
	both := withKeys(t, export, oneKey, otherKey)
	both.BothAuthenticate = true
	for _, tt := range []struct {
		name   string
		export Export
		kind   error
		says   string
	}{
		{"no keys", export, ErrRefused, "authentication: dhchap"},
		{"one key", withKeys(t, export, oneKey, ""), ErrAuthentication, "the target refused this node's key"},
		{"both keys", both, ErrAuthentication, "one side refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, c := newNVMeKernel(t, true)
			k.exchange = func(string) error { return syscall.EIO }
			_, err := c.Connect(t.Context(), tt.export)
			require.ErrorIs(t, err, tt.kind)
			require.ErrorContains(t, err, tt.says)
			assert.False(t, strings.Contains(err.Error(), "DHHC"))
		})
	}
}
