package rpcschema

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLaterReleasesHaveTheCapability(t *testing.T) {
	c := Capability{Release{24, 5}, "lib/a.c: 0123456789"}
	for r, want := range map[Release]bool{{}: false, {23, 9}: false, {24, 1}: false, {24, 5}: true, {24, 9}: true, {25, 1}: true, Future: true} {
		assert.Equal(t, want, r.Has(c), r)
	}
	assert.False(t, Release{}.Has(Capability{}), "an unknown release")
	assert.Equal(t, Release{24, 5}, c.Since())
}

// The table of capabilities agrees with the releases that the schema records for methods,
// parameters and members.
func TestCapabilitiesMatchTheSchema(t *testing.T) {
	d := Default()
	method := func(name string) Window {
		m, ok := d.Method(name)
		require.True(t, ok, name)
		return m.Window
	}
	param := func(name, param string) Window {
		m, ok := d.Method(name)
		require.True(t, ok, name)
		require.NotNil(t, m.Param(param), "%s of %s", param, name)
		return m.Param(param).Schema.Window
	}
	member := func(schema, member string) Window {
		require.NotNil(t, d.Schemas()[schema], schema)
		s := d.Schemas()[schema].Properties.Get(member)
		require.NotNil(t, s, "%s of %s", member, schema)
		return s.Window
	}
	for name, c := range map[string]struct {
		capability Capability
		schema     Window
	}{
		"SetsParent":       {SetsParent, method("bdev_lvol_set_parent")},
		"CountsClusters":   {CountsClusters, member("BdevDriverLvol", "num_allocated_clusters")},
		"ListsClusters":    {ListsClusters, member("LvolInfo", "num_allocated_clusters")},
		"ChangesHostKeys":  {ChangesHostKeys, method("nvmf_subsystem_set_keys")},
		"SetsANAGroup":     {SetsANAGroup, method("nvmf_subsystem_set_ns_ana_group")},
		"BoundsHistograms": {BoundsHistograms, param("bdev_enable_histogram", "max_nsec")},
		"CountsIOByNames":  {CountsIOByNames, param("bdev_get_iostat", "names")},
	} {
		assert.Equal(t, Window{Since: c.capability.Since()}, c.schema, name)
	}
}

// Each capability states its evidence, which is the SPDK source file and either the commit or the
// real targets.
func TestCapabilitiesStateTheirSource(t *testing.T) {
	source := regexp.MustCompile(`^"(lib|module)/[a-z0-9_/]+\.[ch]: .*([0-9a-f]{10}|seen on real v\d\d\.\d\d and v\d\d\.\d\d)\b.*"$`)
	f, err := parser.ParseFile(token.NewFileSet(), "capability.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	rows := 0
	ast.Inspect(f, func(n ast.Node) bool {
		row, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if of, ok := row.Type.(*ast.Ident); !ok || of.Name != "Capability" {
			return true
		}
		rows++
		require.Len(t, row.Elts, 2)
		text, ok := row.Elts[1].(*ast.BasicLit)
		require.True(t, ok, "write the source as one constant")
		assert.Regexp(t, source, text.Value)
		return true
	})
	assert.NotZero(t, rows)
}
