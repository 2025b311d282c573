package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// canary is the value of every secret in the test. It is also a valid hexadecimal key.
const canary = "0ca0a0ca0a0ca0a0ca0a0ca0a0ca0a00"

// A poisoner puts the canary into every part of a value that the schema marks as sensitive.
type poisoner struct {
	document *rpcschema.Document
	placed   int
}

func (p *poisoner) value(s *rpcschema.Schema, v any) any {
	sensitive := s.Sensitive
	s = p.document.Resolve(s)
	if sensitive || s.Sensitive {
		p.placed++
		if _, many := v.([]any); many {
			return []any{canary}
		}
		return canary
	}
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			for _, variant := range append([]*rpcschema.Schema{s}, append(s.OneOf, s.AnyOf...)...) {
				if member := p.document.Resolve(variant).Properties.Get(name); member != nil {
					v[name] = p.value(member, v[name])
				}
			}
		}
	case []any:
		for i := range v {
			if s.Items != nil {
				v[i] = p.value(s.Items, v[i])
			}
		}
	}
	return v
}

// Secrets appear neither in the log, at any level, nor in the metrics. The test lets permitted and
// forbidden users call every method, in well-formed and malformed requests, with secrets in all
// sensitive parameters and some others.
func TestSecretsAreNeitherLoggedNorCounted(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "spdk_get_version", Times: -1, Do: spdktest.Nothing})
	// make every call fail, so that none has an effect
	b.target.Inject(spdktest.Fault{Times: -1, Do: spdktest.Fail})
	call := func(method string, params any) {
		text, err := jsonrpc.Marshal(params)
		require.NoError(t, err)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s}`, canary, method, text)
		b.post(body)
		b.do("POST", "/"+canary, "viewer", viewerPassword, strings.NewReader(body), "X-Secret", canary)
	}
	p := &poisoner{document: rpcschema.Default()}
	asked, leaky := 0, map[string]bool{}
	for _, full := range []bool{false, true} {
		k := sample.Maker{Document: p.document, Release: rpcschema.MustRelease("v26.05"), Full: full}
		for _, m := range p.document.Methods() {
			params := k.Params(m)
			before := p.placed
			for _, param := range m.Params {
				if v, ok := params[param.Name]; ok {
					params[param.Name] = p.value(param.Schema, v)
				}
			}
			if p.placed > before {
				leaky[m.Name] = true
			}
			asked++
			call(m.Name, params)
			params["no_such_parameter"] = map[string]any{canary: []any{canary}}
			call(m.Name, params)
		}
	}
	b.post(`{"id":1,"method":"x","params":{"` + canary + `":1}}`)
	b.post(`["` + canary + `"]`)
	b.post(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + canary)
	b.do("POST", "/", canary, canary, strings.NewReader(createMalloc))
	b.do("GET", "/metrics?"+canary, "admin", canary, nil)

	require.Greater(t, asked, 500)
	assert.Contains(t, leaky, "accel_crypto_key_create")
	assert.Greater(t, len(leaky), 5, "methods with secrets")
	refused := 0
	for _, line := range b.log.Lines(t, "call") {
		if line["status"] == float64(http.StatusForbidden) {
			refused++
		}
	}
	assert.Greater(t, refused, 100)
	for _, line := range strings.Split(b.log.String(), "\n") {
		require.NotContains(t, line, canary)
	}
	assert.NotContains(t, b.scrape(), canary)
}
