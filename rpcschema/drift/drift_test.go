package drift

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var (
	v2509 = rpcschema.MustRelease("v25.09")
	v2605 = rpcschema.MustRelease("v26.05")
	v2609 = rpcschema.MustRelease("v26.09")
)

func toys(t *testing.T) *rpcschema.Document {
	text, err := os.ReadFile("testdata/document.json")
	require.NoError(t, err)
	doc, err := rpcschema.Load(text)
	require.NoError(t, err)
	return doc
}

func source(t *testing.T, name string) *Source {
	s, err := LoadSource(filepath.Join("testdata", name))
	require.NoError(t, err)
	return s
}

func lines(list []Difference) (out []string) {
	for _, d := range list {
		out = append(out, d.String())
	}
	return out
}

func TestMatchingSourcesHaveNoDifferences(t *testing.T) {
	for _, name := range []string{"good.yaml", "words.json"} {
		r := against(toys(t), source(t, name), nil, v2605)
		assert.Empty(t, lines(r.Differences), name)
		assert.Equal(t, 2, r.Compared)
	}
}

func TestDifferingSourceIsReported(t *testing.T) {
	r := against(toys(t), source(t, "bad.yaml"), nil, v2605)
	assert.Equal(t, []string{
		"toy_paint name: required: ours true, SPDK's schema false",
		"toy_paint size: type: ours integer or uint32, SPDK's schema string",
		"toy_paint where.x: type: ours integer or int32, SPDK's schema uint64",
		"toy_paint where.z: missing: SPDK's schema has this parameter (int32)",
		"toy_paint where.y: extra: SPDK's schema does not have this parameter",
		"toy_paint path: count: ours at most 3 items, SPDK's schema at most 4 items",
		"toy_paint path[].x: type: ours integer or int32, SPDK's schema uint64",
		"toy_paint path[].z: missing: SPDK's schema has this parameter (int32)",
		"toy_paint path[].y: extra: SPDK's schema does not have this parameter",
		"toy_paint colour: enum: ours blue, red, SPDK's schema green, red",
		"toy_paint shade: missing: SPDK's schema has this parameter (uint8)",
		"toy_paint palette: extra: SPDK's schema does not have this parameter",
		"toy_new: missing: SPDK's schema has this method",
		"toy_list: extra: SPDK's schema does not have this method",
	}, lines(r.Differences))
	assert.Len(t, r.Unexplained(), len(r.Differences))
}

func TestComparisonUsesTheSourcesRelease(t *testing.T) {
	r := against(toys(t), source(t, "good.yaml"), nil, v2609)
	assert.Equal(t, []string{"toy_paint colour: enum: ours blue, gold, red, SPDK's schema blue, red"}, lines(r.Differences))
	r = against(toys(t), source(t, "good.yaml"), nil, v2509)
	assert.Equal(t, []string{
		"toy_paint old: extra: SPDK's schema does not have this parameter",
		"toy_old: extra: SPDK's schema does not have this method",
	}, lines(r.Differences))
}

func TestKnownDifferencesAreExplained(t *testing.T) {
	reasons, err := readKnown([]byte(`
- {method: toy_paint, param: where.z, kind: missing, why: Only in dreams, shown: 'toy.c: decoder'}
- {method: toy_new, kind: missing, until: v26.01, why: Not yet, shown: 'toy.c: register'}
- {method: toy_paint, param: glossy, kind: type, why: It was a string, shown: 'toy.c: decoder'}
`))
	require.NoError(t, err)
	r := against(toys(t), source(t, "bad.yaml"), reasons, v2605)
	all := lines(r.Differences)
	assert.Contains(t, all, "toy_paint where.z: missing: SPDK's schema has this parameter (int32) (known: Only in dreams; see toy.c: decoder)")
	unexplained := lines(r.Unexplained())
	assert.NotContains(t, strings.Join(unexplained, "\n"), "where.z")
	assert.Contains(t, unexplained, "toy_new: missing: SPDK's schema has this method", "the explanation is about older releases")
	assert.Contains(t, unexplained, `toy_paint glossy: stale: known.yaml explains "type", which is not there: take it out, or bound its releases`)
}

func TestInvalidExplanationsAreRejected(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key": "- {method: m, kind: type, why: w, shown: s, because: x}",
		"no why":      "- {method: m, kind: type, shown: s}",
		"no place":    "- {method: m, kind: type, why: w}",
		"no kind":     "- {method: m, why: w, shown: s}",
		"release":     "- {method: m, kind: type, why: w, shown: s, since: soon}",
		"not a list":  "method: m",
	} {
		_, err := readKnown([]byte(text))
		assert.ErrorContains(t, err, "known.yaml", name)
	}
}

// Each embedded explanation names an existing method and parameter, and no two explanations name
// the same ones.
func TestEmbeddedExplanationsNameExistingMethods(t *testing.T) {
	reasons, err := readKnown(knownText)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, e := range reasons {
		id := strings.Join([]string{e.Method, e.Param, string(e.Kind), e.Since.String()}, " ")
		assert.False(t, seen[id], "twice: %s", id)
		seen[id] = true
		assert.Contains(t, []Kind{Missing, Extra, Type, Required, Enum, Count}, e.Kind, id)
		m, err := rpcschema.Default().Find(e.Method, rpcschema.Release{})
		if !assert.NoError(t, err, e.Method) || e.Param == "" || e.Kind == Missing {
			continue
		}
		name, _, _ := strings.Cut(e.Param, "[")
		name, _, _ = strings.Cut(name, ".")
		assert.NotNil(t, m.Param(name), "%s has no parameter %s", e.Method, name)
	}
}

// All differences between the schema and the schema files of the source trees in SPDK_SRC_TREES are
// known. That environment variable contains RELEASE=PATH pairs, separated by colons.
func TestSchemaMatchesSPDKSources(t *testing.T) {
	trees := os.Getenv("SPDK_SRC_TREES")
	if trees == "" {
		t.Skip("SPDK_SRC_TREES=v26.05=/path/to/spdk:… compares the schema with SPDK's own")
	}
	for _, tree := range strings.Split(trees, ":") {
		release, path, ok := strings.Cut(tree, "=")
		require.True(t, ok, "SPDK_SRC_TREES: %q is not RELEASE=PATH", tree)
		r, err := rpcschema.ParseRelease(release)
		require.NoError(t, err)
		s, err := LoadSource(path)
		require.NoError(t, err)
		report := Against(rpcschema.Default(), s, r)
		assert.Empty(t, lines(report.Unexplained()), release)
		t.Logf("%s: %d methods, %d known differences", release, report.Compared, len(report.Differences))
	}
}

func TestLiveMethodsAreComparedWithTheSchema(t *testing.T) {
	r := Live(toys(t), []string{"toy_paint", "paint_toy", "toy_pant", "toy_old"}, v2605)
	assert.Equal(t, []string{
		"paint_toy: renamed: it is called toy_paint now (known: the schema has it as a deprecated name)",
		`toy_pant: missing: unknown method "toy_pant": did you mean toy_paint?`,
		"toy_old: missing: method toy_old exists in SPDK up to v25.09, but the target runs v26.05",
		"toy_list: extra: the target does not list it (state any) (known: not built in, or not callable in the target's present state)",
	}, lines(r.Differences))
	assert.Len(t, r.Unexplained(), 2)

	r = Live(toys(t), []string{"toy_list", "toy_paint"}, v2605)
	assert.Empty(t, r.Differences)
}

func TestReportIsWrittenAsText(t *testing.T) {
	r := &Report{Subject: "x", Release: v2605, Compared: 3, Differences: []Difference{
		{Method: "a", Kind: Missing, Detail: "d"}, {Method: "b", Param: "p", Kind: Type, Detail: "e", Why: "w"},
	}}
	var few, all strings.Builder
	require.NoError(t, r.Write(&few, false))
	require.NoError(t, r.Write(&all, true))
	assert.Equal(t, "a: missing: d\nx (v26.05): 3 methods compared, 1 unexplained and 1 known differences\n", few.String())
	assert.Equal(t, "a: missing: d\nb p: type: e (known: w)\nx (v26.05): 3 methods compared, 1 unexplained and 1 known differences\n", all.String())
}

func TestSourceTreeIsLoaded(t *testing.T) {
	tree := t.TempDir()
	_, err := LoadSource(tree)
	assert.ErrorContains(t, err, "specify an SPDK source tree")
	_, err = LoadSource(filepath.Join(tree, "nowhere"))
	assert.ErrorContains(t, err, "specify an SPDK source tree")

	require.NoError(t, os.Mkdir(filepath.Join(tree, "schema"), 0o755))
	text, err := os.ReadFile("testdata/good.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tree, "schema", "schema.yaml"), text, 0o644))
	s, err := LoadSource(tree)
	require.NoError(t, err)
	assert.Len(t, s.Methods, 2)
	assert.Equal(t, filepath.Join(tree, "schema", "schema.yaml"), s.Path)

	assert.False(t, s.Release.Known())
	for version, want := range map[string]string{"26.05.0\n": "v26.05", "26.09.0-pre\n": "v26.09", "soon": "unknown release"} {
		require.NoError(t, os.WriteFile(filepath.Join(tree, "VERSION"), []byte(version), 0o644))
		s, err = LoadSource(tree)
		require.NoError(t, err)
		assert.Equal(t, want, s.Release.String())
	}

	other := filepath.Join(tree, "other.yaml")
	require.NoError(t, os.WriteFile(other, []byte("a: [b"), 0o644))
	_, err = LoadSource(other)
	assert.ErrorContains(t, err, "other.yaml")
	require.NoError(t, os.WriteFile(other, []byte("methods: []"), 0o644))
	_, err = LoadSource(other)
	assert.ErrorContains(t, err, "lists no methods")
}
