package plan

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The golden file lists the plans of all methods for reviewers. A schema change that opens a method
// to tenants, or that lets its result pass unfiltered, appears in its diff.
func TestPlansMatchGoldenFile(t *testing.T) {
	plans := New(rpcschema.Default())
	var b strings.Builder
	for _, m := range rpcschema.Default().Methods() {
		p := plans.Of(m.Name)
		says := "refused: " + p.Refusal
		switch {
		case p.Open:
			says = "open"
		case p.Refusal == "" && p.Lists:
			says = "filtered"
		case p.Refusal == "":
			says = "allowed for the tenant's objects"
		}
		if p.Refusal == "" && p.Raw {
			says += "; its result needs no filter"
		}
		fmt.Fprintf(&b, "%s: %s\n", m.Name, says)
	}
	const path = "testdata/plans.golden"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
}
