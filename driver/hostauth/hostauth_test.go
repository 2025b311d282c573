package hostauth_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

const (
	key     = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	class   = "csi.storage.k8s.io/node-stage-secret"
	pass    = "correct-horse-1"
	outPass = "battery-staple-2"
)

func TestAuthenticationSecretsAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		method  hostauth.Method
		secrets map[string]string
		kind    error
		text    string
		both    bool
	}{
		"a key":                     {hostauth.DHCHAP, map[string]string{"dhchap-key": key}, nil, "", false},
		"with a line end":           {hostauth.DHCHAP, map[string]string{"dhchap-key": key + "\n"}, nil, "", false},
		"both directions":           {hostauth.DHCHAP, map[string]string{"dhchap-key": key, "dhchap-ctrl-key": key}, nil, "", true},
		"no key":                    {hostauth.DHCHAP, map[string]string{"dhchap-ctrl-key": key}, hostauth.ErrMissing, "no key dhchap-key: set " + class + "-name", false},
		"no secret":                 {hostauth.DHCHAP, nil, hostauth.ErrMissing, "no key dhchap-key", false},
		"another form":              {hostauth.DHCHAP, map[string]string{"dhchap-key": "NVMeTLSkey-1:01:MDAx:"}, hostauth.ErrMalformed, "nvme gen-dhchap-key", false},
		"an option of the kernel's": {hostauth.DHCHAP, map[string]string{"dhchap-key": "DHHC-1:00:abc:,hostnqn=x"}, hostauth.ErrMalformed, "dhchap-key", false},
		"another hash":              {hostauth.DHCHAP, map[string]string{"dhchap-key": strings.Replace(key, ":00:", ":03:", 1)}, hostauth.ErrMalformed, "length of dhchap-key", false},
		"a changed character":       {hostauth.DHCHAP, map[string]string{"dhchap-ctrl-key": strings.Replace(key, "Zzaw", "Zzbw", 1), "dhchap-key": key}, hostauth.ErrMalformed, "checksum of dhchap-ctrl-key", false},
		"CHAP":                      {hostauth.CHAP, map[string]string{"chap-user": "u", "chap-password": pass}, nil, "", false},
		"mutual CHAP":               {hostauth.CHAP, map[string]string{"chap-user": "u", "chap-password": pass, "chap-target-user": "t", "chap-target-password": outPass}, nil, "", true},
		"no user":                   {hostauth.CHAP, map[string]string{"chap-password": pass}, hostauth.ErrMissing, "chap-user", false},
		"no password":               {hostauth.CHAP, map[string]string{"chap-user": "u", "dhchap-key": key}, hostauth.ErrMissing, "chap-password", false},
		"short":                     {hostauth.CHAP, map[string]string{"chap-user": "u", "chap-password": "elevenchars"}, hostauth.ErrMalformed, "12 to 255", false},
		"a second line":             {hostauth.CHAP, map[string]string{"chap-user": "u", "chap-password": pass + "\nnode.x = y"}, hostauth.ErrMalformed, "12 to 255", false},
		"a space in the user":       {hostauth.CHAP, map[string]string{"chap-user": "u v", "chap-password": pass}, hostauth.ErrMalformed, "1 to 255", false},
		"half of mutual":            {hostauth.CHAP, map[string]string{"chap-user": "u", "chap-password": pass, "chap-target-user": "t"}, hostauth.ErrMalformed, "add the other", false},
		"the same password":         {hostauth.CHAP, map[string]string{"chap-user": "u", "chap-password": pass, "chap-target-user": "t", "chap-target-password": pass}, hostauth.ErrMalformed, "must differ", false},
		"an unknown method":         {"x", map[string]string{"dhchap-key": key}, hostauth.ErrMalformed, "unknown method", false},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := hostauth.Read(c.method, c.secrets, class)
			if c.kind == nil {
				require.NoError(t, err)
				assert.Equal(t, c.both, k.Both())
				return
			}
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
			for _, secret := range c.secrets {
				if len(secret) > 10 {
					assert.NotContains(t, err.Error(), secret)
				}
			}
		})
	}
	k, err := hostauth.Read(hostauth.None, nil, class)
	require.NoError(t, err)
	assert.Nil(t, k)
	assert.False(t, k.Both())
}

// A secret never appears in output, regardless of how it is printed.
func TestSecretsAreNotPrinted(t *testing.T) {
	k, err := hostauth.Read(hostauth.DHCHAP, map[string]string{"dhchap-key": key, "dhchap-ctrl-key": key}, class)
	require.NoError(t, err)
	type inside struct{ keys *hostauth.Keys }
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb+" "+verb+" "+verb+" "+verb+"\n", k, k.Host, inside{k}, []any{k.Host, *k})
	}
	text, err := json.Marshal(k)
	require.NoError(t, err)
	b.Write(text)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "keys", k, "host", k.Host)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "keys", k, "host", k.Host)
	assert.NotContains(t, b.String(), key[10:30])
	assert.NotContains(t, b.String(), fmt.Sprintf("%x", key[10:30]))
	assert.Equal(t, key, k.Host.Reveal())
}

func TestSecretNameDependsOnTheKey(t *testing.T) {
	a, b := hostauth.NewSecret(key), hostauth.NewSecret(pass)
	assert.Equal(t, a.Name(), hostauth.NewSecret(key).Name())
	assert.NotEqual(t, a.Name(), b.Name())
	assert.True(t, hostauth.IsName(a.Name()))
	assert.False(t, hostauth.IsName("host-1"))
}

func TestMethodsAreParsed(t *testing.T) {
	for _, text := range []string{"", "dhchap", "chap"} {
		m, err := hostauth.ParseMethod(text)
		require.NoError(t, err)
		assert.Equal(t, text, string(m))
	}
	_, err := hostauth.ParseMethod("none")
	require.ErrorContains(t, err, "dhchap or chap")
	assert.True(t, hostauth.IsSecretKey("dhchap-key"))
	assert.True(t, hostauth.IsSecretKey("chap-target-password"))
	assert.False(t, hostauth.IsSecretKey("secret.json"))
}
