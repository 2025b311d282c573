package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each change to a small package has the expected outcome.
func TestMutants(t *testing.T) {
	packages, err := load(t.Context(), []string{"./testdata/sum"})
	require.NoError(t, err)
	require.Len(t, packages, 1)
	all, err := mutants(packages[0])
	require.NoError(t, err)
	got, long := map[string]verdict{}, map[string]string{}
	for _, m := range all {
		m.pkg.short = true
		r := m.try(t.Context(), time.Minute)
		require.NoError(t, r.err)
		got[m.String()] = r.verdict
		if r.verdict == survived {
			m.pkg.short = false
			long[m.String()] = m.try(t.Context(), time.Minute).test
		}
	}
	assert.Equal(t, map[string]verdict{
		"testdata/sum/sum.go:6: > → >=":  survived,
		"testdata/sum/sum.go:6: > → <=":  killed,
		"testdata/sum/sum.go:6: 0 → 1":   killed,
		"testdata/sum/sum.go:8: == → !=": killed,
		"testdata/sum/sum.go:8: 7 → 8":   survived,
	}, got)
	assert.Equal(t, map[string]string{"testdata/sum/sum.go:6: > → >=": "", "testdata/sum/sum.go:8: 7 → 8": "TestLong"}, long, "the long tests run on what the short tests did not detect")
}

func TestSample(t *testing.T) {
	percent, err := run(t.Context(), []string{"./testdata/sum"}, 5, 1, 2, time.Minute, true, false)
	require.NoError(t, err)
	assert.Equal(t, 60, percent)
	_, err = run(t.Context(), []string{"./testdata"}, 5, 1, 2, time.Minute, false, false)
	require.Error(t, err)
	_, err = run(t.Context(), []string{"./testdata/sum", "./testdata/failing"}, 7, 1, 2, time.Minute, false, false)
	require.ErrorContains(t, err, "testdata/failing fail even without a change")
	require.ErrorContains(t, err, "needs a program")
}

// The tests of a package that imports the changed one can detect what the changed package's own
// tests do not.
func TestImportersDetectChanges(t *testing.T) {
	packages, err := load(t.Context(), []string{"./testdata/sum"})
	require.NoError(t, err)
	importers, err := load(t.Context(), []string{"./testdata/importer"})
	require.NoError(t, err)
	i := &importer{pkg: importers[0], changed: []string{packages[0].ImportPath}}
	packages[0].importers = []*importer{i}
	packages[0].short = true
	all, err := mutants(packages[0])
	require.NoError(t, err)
	byImporter := map[string]string{}
	for _, m := range all {
		r := m.try(t.Context(), time.Minute)
		require.NoError(t, r.err)
		if r.test == "TestZero" {
			byImporter[m.String()] = r.test
		}
	}
	assert.Equal(t, map[string]string{"testdata/sum/sum.go:6: > → >=": "TestZero"}, byImporter)
	for line, want := range map[int]bool{4: true, 6: true, 8: false} { // line 4 belongs to no function
		covered, err := i.covers(t.Context(), time.Minute, mutant{pkg: packages[0], file: "sum.go", line: line})
		require.NoError(t, err)
		assert.Equal(t, want, covered, line)
	}
}
