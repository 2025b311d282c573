package rpcschema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/sample/broken"
)

// An acceptor accepts nothing that the validator rejects, and nearly all methods have an acceptor.
func TestAcceptorAgreesWithValidator(t *testing.T) {
	doc := rpcschema.Default()
	accepted, valid, invalid := 0, 0, 0
	for _, r := range []rpcschema.Release{{}, rpcschema.Oldest, rpcschema.MustRelease("v26.05"), rpcschema.MustRelease("v26.09")} {
		for _, k := range []sample.Maker{{Document: doc, Release: r}, {Document: doc, Release: r, Full: true}, {Document: doc, Release: r, Full: true, Extreme: true}} {
			for _, m := range doc.Methods() {
				if !m.Has(r) {
					continue
				}
				fast, slow := doc.FastAndSlow(m.Name, k.Params(m), r)
				require.True(t, slow, m.Name)
				valid++
				if fast {
					accepted++
				}
				for _, b := range broken.Calls(k, m) {
					fast, slow := doc.FastAndSlow(m.Name, b.Params, r)
					require.False(t, fast && !slow, "%s %s %s at %s", m.Name, b.What, b.Pointer, r)
					invalid++
				}
			}
		}
	}
	t.Logf("acceptors accepted %d of %d valid calls, and none of %d invalid ones", accepted, valid, invalid)
	assert.Greater(t, accepted*100, valid*98)
}

func FuzzAcceptor(f *testing.F) {
	doc := rpcschema.Default()
	r := rpcschema.MustRelease("v26.05")
	k := sample.Maker{Document: doc, Release: r, Full: true}
	for _, m := range doc.Methods() {
		if m.Has(r) && len(m.Params) > 0 {
			text, err := jsonrpc.Marshal(k.Params(m))
			require.NoError(f, err)
			f.Add(m.Name, string(text))
		}
	}
	f.Fuzz(func(t *testing.T, method, text string) {
		m, ok := doc.Method(method)
		if !ok || !m.Has(r) {
			return
		}
		v, err := jsonrpc.DecodeValue([]byte(text), jsonrpc.LimitsV2605)
		if err != nil {
			return
		}
		params, ok := v.(map[string]any)
		if !ok {
			return
		}
		if fast, slow := doc.FastAndSlow(method, params, r); fast && !slow {
			t.Fatalf("%s: accepted, but not valid: %s", method, text)
		}
	})
}
