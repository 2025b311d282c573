package schema

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample/broken"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// throughProxy returns a Caller through a proxy whose user may call every method.
func throughProxy(t *testing.T, f *fake) *spdkrpc.HTTPS {
	c, err := config.Script{Host: "127.0.0.1", Port: "1", User: "u", Password: "p", Socket: f.socket}.Config()
	require.NoError(t, err)
	c.Limits.AuthFailuresPerMinute = 1000
	c.Target.SnapshotsInUse = "allow" // the fake target answers only the expected calls
	server, err := proxy.NewServer(c, proxy.Options{})
	require.NoError(t, err)
	front := httptest.NewServer(server.Handler())
	t.Cleanup(front.Close)
	caller, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: front.URL, Username: "u", Password: "p"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	return caller
}

// When the typed client calls any method through the proxy, the parameters arrive at the target
// unchanged, and the target's result is returned completely.
func TestProxyChangesNoCalls(t *testing.T) {
	doc := rpcschema.Default()
	for _, r := range []rpcschema.Release{rpcschema.Oldest, v2605} {
		t.Run(r.String(), func(t *testing.T) {
			f := newFake(t, r)
			c := spdkrpc.NewClient(throughProxy(t, f))
			_, err := c.Release(t.Context())
			require.NoError(t, err)
			for _, m := range doc.OfSPDK() {
				if !m.Has(r) || m.Name == "spdk_get_version" { // the proxy itself calls it
					continue
				}
				for variant, k := range variants(r) {
					params := k.Params(m)
					if !oldNames(m, params) {
						roundTrip(t, c, f, m, params, k.Result(m), where(m, variant, r))
					}
				}
			}
		})
	}
}

// A call that the schema does not allow never reaches the target.
func TestProxyRefusesInvalidCalls(t *testing.T) {
	f := newFake(t, v2605)
	caller := throughProxy(t, f)
	k := variants(v2605)["minimal"]
	refused := 0
	for _, m := range k.Document.OfSPDK() {
		if !m.Has(v2605) {
			continue
		}
		f.expect(m.Name, jsonrpc.Response{Result: []byte("true")})
		before := f.count()
		for _, b := range broken.Calls(k, m) {
			if _, _, err := m.Translate(b.Params, v2605); b.What == "release" && err == nil && translated(m, b.Params) {
				continue // an old name, which the proxy translates
			}
			err := caller.Call(t.Context(), m.Name, b.Params, nil)
			require.ErrorIs(t, err, spdkrpc.InvalidParams, "%s %s %s", m.Name, b.What, b.Pointer)
			refused++
		}
		assert.Equal(t, before, f.count(), "%s reached the target", m.Name)
	}
	t.Logf("%d calls refused", refused)
}

func translated(m *rpcschema.Method, params map[string]any) bool {
	_, done, _ := m.Translate(params, v2605)
	return len(done) > 0
}

// The proxy returns SPDK's refusals with SPDK's code and message.
func TestProxyReturnsRefusals(t *testing.T) {
	f := newFake(t, v2605)
	caller := throughProxy(t, f)
	k := variants(v2605)["minimal"]
	for _, m := range k.Document.OfSPDK() {
		if !m.Has(v2605) || m.Name == "spdk_get_version" {
			continue
		}
		for _, e := range m.Errors {
			f.expect(m.Name, jsonrpc.Response{Error: &jsonrpc.Error{Code: e.Code, Message: "SPDK's message"}})
			var refusal *spdkrpc.Error
			require.ErrorAs(t, caller.Call(t.Context(), m.Name, k.Params(m), nil), &refusal)
			assert.Equal(t, e.Code, refusal.Code, m.Name)
			assert.Equal(t, "SPDK's message", refusal.Message, m.Name)
		}
	}
}
