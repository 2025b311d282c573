package schema

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var (
	v2605 = rpcschema.MustRelease("v26.05")
	v2609 = rpcschema.MustRelease("v26.09")
)

// variants lists the kinds of values for each method's calls and results.
func variants(r rpcschema.Release) map[string]sample.Maker {
	doc := rpcschema.Default()
	return map[string]sample.Maker{
		"minimal": {Document: doc, Release: r},
		"full":    {Document: doc, Release: r, Full: true},
		"extreme": {Document: doc, Release: r, Full: true, Extreme: true},
	}
}

// oldNames lists parameters that the typed client supports only under their new names.
func oldNames(m *rpcschema.Method, params map[string]any) bool {
	for _, p := range m.Params {
		if p.Schema.Replaces != nil {
			if _, old := params[p.Schema.Replaces.Name]; old {
				return true
			}
		}
	}
	return false
}

// When the typed client calls any method in any area, the parameters arrive at the target unchanged
// and valid, and the target's result is returned completely.
func TestTypedClientPreservesParametersAndResults(t *testing.T) {
	doc := rpcschema.Default()
	for _, r := range []rpcschema.Release{rpcschema.Oldest, v2605, v2609} {
		t.Run(r.String(), func(t *testing.T) {
			f := newFake(t, r)
			socket := spdkrpc.NewSocket(f.socket)
			defer socket.Close()
			socket.SetLimits(jsonrpc.LimitsV2605)
			c := spdkrpc.NewClient(socket)
			_, err := c.Release(t.Context())
			require.NoError(t, err)
			calls := 0
			trusting := spdkrpc.NewClient(socket, spdkrpc.WithoutValidation())
			for _, m := range doc.OfSPDK() {
				if !m.Has(r) {
					continue
				}
				for variant, k := range variants(r) {
					params := k.Params(m)
					if oldNames(m, params) {
						continue
					}
					roundTrip(t, c, f, m, params, k.Result(m), where(m, variant, r))
					method, arrived := f.last()
					given, _ := arrived.(map[string]any)
					require.NoError(t, doc.ValidateParams(method, given, r), where(m, variant, r))
					calls++
				}
				full := variants(r)["full"]
				params := zeros(full.Params(m)).(map[string]any)
				if oldNames(m, params) {
					continue
				}
				result := zeros(full.Result(m))
				if confirmed(m) {
					result = true
				}
				roundTrip(t, trusting, f, m, params, result, where(m, "zeros", r))
				calls++
			}
			t.Logf("%d calls", calls)
		})
	}
}

// confirmed reports whether a method's result is true on success.
func confirmed(m *rpcschema.Method) bool {
	return m.Result.Schema.Type.Main() == "boolean" && (m.Mutates || m.Result.Schema.Const != nil)
}

func roundTrip(t *testing.T, c *spdkrpc.Client, f *fake, m *rpcschema.Method, params map[string]any, result any, where string) {
	t.Helper()
	// The typed client omits an optional parameter that could be null.
	maps.DeleteFunc(params, func(name string, v any) bool { return v == nil && !m.Param(name).Required })
	f.expect(m.Name, jsonrpc.Response{Result: text(t, result)})
	got, err := callTyped(t.Context(), t, c, m, params)
	require.NoError(t, err, where)
	method, arrived := f.last()
	require.Equal(t, m.Name, method, where)
	require.Equal(t, bare(m, params), arrived, "parameters that arrived: %s", where)
	if confirmed(m) {
		require.Nil(t, got, where)
		return
	}
	require.Equal(t, values(t, result), got, "result that was returned: %s", where)
}

// For each known error of every method, the client returns SPDK's code. A result of false is an
// error if true is the only success.
func TestClientReturnsDocumentedErrorCodes(t *testing.T) {
	f := newFake(t, v2605)
	socket := spdkrpc.NewSocket(f.socket)
	defer socket.Close()
	c := spdkrpc.NewClient(socket)
	k := variants(v2605)["minimal"]
	for _, m := range k.Document.OfSPDK() {
		if !m.Has(v2605) {
			continue
		}
		for _, e := range m.Errors {
			f.expect(m.Name, jsonrpc.Response{Error: &jsonrpc.Error{Code: e.Code, Message: e.Message}})
			_, err := callTyped(t.Context(), t, c, m, k.Params(m))
			var refused *spdkrpc.Error
			require.ErrorAs(t, err, &refused, m.Name)
			assert.Equal(t, e.Code, refused.Code, m.Name)
			assert.Equal(t, m.Name, refused.Method)
		}
		if confirmed(m) {
			f.expect(m.Name, jsonrpc.Response{Result: []byte("false")})
			_, err := callTyped(t.Context(), t, c, m, k.Params(m))
			assert.ErrorIs(t, err, spdkrpc.Failed, m.Name)
		}
	}
}
