package broken_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/sample/broken"
)

func makers(r rpcschema.Release) map[string]sample.Maker {
	doc := rpcschema.Default()
	return map[string]sample.Maker{
		"minimal": {Document: doc, Release: r}, "full": {Document: doc, Release: r, Full: true},
		"extreme": {Document: doc, Release: r, Full: true, Extreme: true}, "minimal extreme": {Document: doc, Release: r, Extreme: true},
	}
}

// Each broken call is refused only for its intended mistake.
func TestEachCallHasOneMistake(t *testing.T) {
	kinds := map[string]int{}
	for _, r := range []rpcschema.Release{rpcschema.Oldest, rpcschema.MustRelease("v26.05")} {
		for name, k := range makers(r) {
			for _, m := range k.Document.Methods() {
				if !m.Has(r) {
					continue
				}
				for _, b := range broken.Calls(k, m) {
					kinds[b.What]++
					where := fmt.Sprintf("%s %s: %s of %s at %s", b.What, b.Pointer, name, m.Name, r)
					var v rpcschema.Violations
					require.True(t, errors.As(k.Document.ValidateParams(m.Name, b.Params, r), &v), where)
					at := make([]string, len(v))
					for i := range v {
						at[i] = v[i].Pointer
					}
					require.Subset(t, []string{b.Pointer}, at, where)
				}
			}
		}
	}
	for _, what := range []string{"missing", "mistyped", "null", "fraction", "multiple", "too small", "too large", "too short", "too long", "pattern", "enum", "too few", "too many", "unknown", "release", "group"} {
		assert.NotZero(t, kinds[what], "no call is broken by %q", what)
	}
	t.Log(kinds)
}

func TestValidParametersAreNotChanged(t *testing.T) {
	k := sample.Maker{Document: rpcschema.Default(), Release: rpcschema.MustRelease("v26.05"), Full: true}
	for _, m := range k.Document.Methods() {
		if m.Has(k.Release) {
			base := k.Params(m)
			broken.From(k, m, base)
			require.Equal(t, k.Params(m), base, m.Name)
		}
	}
}
