package sample

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var releases = []rpcschema.Release{
	{}, rpcschema.Oldest, rpcschema.MustRelease("v24.01"), rpcschema.MustRelease("v25.09"), rpcschema.MustRelease("v26.05"), rpcschema.MustRelease("v26.09"),
}

func makers(r rpcschema.Release) map[string]Maker {
	doc := rpcschema.Default()
	return map[string]Maker{
		"minimal": {Document: doc, Release: r}, "full": {Document: doc, Release: r, Full: true},
		"extreme": {Document: doc, Release: r, Full: true, Extreme: true}, "minimal extreme": {Document: doc, Release: r, Extreme: true},
	}
}

// Samples are valid parameters and results for every method and release.
func TestSamplesAreValid(t *testing.T) {
	for _, r := range releases {
		for name, k := range makers(r) {
			for _, m := range k.Document.Methods() {
				if !m.Has(r) {
					continue
				}
				where := fmt.Sprintf("%s of %s at %s", name, m.Name, r)
				require.NoError(t, k.Document.ValidateParams(m.Name, m.Bare(k.Params(m)), r), where)
				require.NoError(t, k.Document.ValidateResult(m.Name, k.Result(m), r), where)
			}
		}
	}
}

// Every enumerated value is valid only for the releases that support it.
func TestEnumeratedValuesDependOnTheRelease(t *testing.T) {
	doc, checked, later := rpcschema.Default(), 0, 0
	for _, r := range releases {
		for _, m := range doc.Methods() {
			for _, p := range m.Params {
				if !m.Has(r) || !p.Schema.Has(r) {
					continue
				}
				s := doc.Resolve(p.Schema)
				for _, v := range s.Enum {
					params := Maker{Document: doc, Release: r}.Params(m)
					params[p.Name] = v
					var found rpcschema.Violations
					errors.As(doc.ValidateParams(m.Name, params, r), &found)
					refused := slices.ContainsFunc(found, func(v rpcschema.Violation) bool { return v.Pointer == "/"+p.Name })
					known := s.HasValue(fmt.Sprint(v), r)
					assert.Equal(t, !known, refused, "%s.%s = %v at %s: %v", m.Name, p.Name, v, r, found)
					checked++
					if !known {
						later++
					}
				}
			}
		}
	}
	t.Logf("%d values, %d of them not yet known", checked, later)
	assert.Positive(t, later)
}

func TestSamplesUseTheGivenNames(t *testing.T) {
	k := Maker{Document: rpcschema.Default(), Names: map[string]string{"bdev": "mine"}}
	m, _ := k.Document.Method("bdev_aio_delete")
	assert.Equal(t, map[string]any{"name": "mine"}, k.Params(m))
}
