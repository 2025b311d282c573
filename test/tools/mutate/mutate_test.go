package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tried returns the outcome of each change to ./testdata/sum, and the test that detected it.
func tried(t *testing.T, o options) (verdicts map[string]verdict, tests map[string]string) {
	o.n, o.seed, o.timeout = 100, 1, time.Minute
	dir := t.TempDir()
	all, err := sample(t.Context(), dir, []string{"./testdata/sum"}, o)
	require.NoError(t, err)
	suites, err := newSuites(t.Context(), dir, all, o.importers)
	require.NoError(t, err)
	verdicts, tests = map[string]verdict{}, map[string]string{}
	for _, m := range all {
		v, test, err := try(t.Context(), suites[m.pkg.ImportPath], m, o)
		require.NoError(t, err)
		name := filepath.Base(m.place()) + " " + m.what()
		verdicts[name] = v
		if v != survived {
			tests[name] = filepath.Base(test)
		}
	}
	return verdicts, tests
}

// Each change to a small package has the expected outcome. The change that does not compile, text -
// text, is not among them.
func TestMutantsHaveTheExpectedOutcome(t *testing.T) {
	short, _ := tried(t, options{short: true})
	assert.Equal(t, map[string]verdict{
		"sum.go:4 3 → 4":         killed, // outside functions
		"sum.go:8 > → >=":        survived,
		"sum.go:8 > → <=":        killed,
		"sum.go:8 0 → 1":         killed,
		"sum.go:10 == → !=":      killed,
		"sum.go:10 7 → 8":        survived,
		"sum.go:17 + → -":        killed,
		"sum.go:17 1 → 2":        killed,
		"sum.go:26 true → false": killed,
		"sum.go:30 > → >=":       survived,
		"sum.go:30 > → <=":       survived,
		"sum.go:31 < → <=":       survived,
		"sum.go:31 < → >=":       survived,
		"sum.go:31 9 → 10":       survived,
		"sum.go:33 true → false": killed,
		"sum.go:38 == → !=":      killed, // the switch is executed, but not the statement after the case
		"sum.go:38 9 → 10":       survived,
		"sum.go:39 1 → 2":        survived,
		"sum.go:41 2 → 3":        killed,
	}, short)
	// The long tests and those of an importer detect more changes.
	all, tests := tried(t, options{importers: "./testdata/importer"})
	assert.Len(t, all, len(short))
	assert.Equal(t, "sum TestLong", tests["sum.go:10 7 → 8"])
	assert.Equal(t, "importer TestZero", tests["sum.go:8 > → >="])
	assert.Equal(t, "sum TestPositive", tests["sum.go:8 > → <="])
	assert.NotContains(t, tests, "sum.go:31 9 → 10")
}

func TestSampleIsReproducible(t *testing.T) {
	o := options{n: 15, seed: 1, timeout: time.Minute, short: true}
	percent, err := run(t.Context(), []string{"./testdata/sum"}, o)
	require.NoError(t, err)
	assert.Equal(t, 53, percent)
	_, err = run(t.Context(), []string{"./testdata"}, o)
	require.Error(t, err)
	_, err = run(t.Context(), []string{"./testdata/sum", "./testdata/failing"}, o)
	require.ErrorContains(t, err, "testdata/failing fail even without a change")
	require.ErrorContains(t, err, "needs a program")
	o.n = 3
	first, err := sample(t.Context(), t.TempDir(), []string{"./testdata/sum"}, o)
	require.NoError(t, err)
	require.Len(t, first, 3)
	again, err := sample(t.Context(), t.TempDir(), []string{"./testdata/sum"}, o)
	require.NoError(t, err)
	assert.Equal(t, first, again)
}

func TestSuiteRunsOnlyIfItExecutesTheLine(t *testing.T) {
	s := &suite{blocks: blocks("mode: atomic\nexample.com/sum/sum.go:6.2,7.3 1 4\nexample.com/sum/sum.go:8.2,9.3 1 0\n")}
	m := mutant{pkg: pkg{ImportPath: "example.com/sum"}, file: filepath.Join(string(os.PathSeparator), "src", "sum.go")}
	for line, want := range map[int]bool{4: true, 6: true, 7: true, 8: false} { // line 4 belongs to no function
		m.reached = line
		assert.Equal(t, want, s.covers(m), line)
	}
}
