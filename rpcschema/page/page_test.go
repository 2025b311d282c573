package page

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run go test ./rpcschema/page -update, and review the difference")
}

func TestMethodPageIsShown(t *testing.T) {
	doc := toys(t)
	for name, c := range map[string]struct{ method, release string }{
		"toy_paint.golden": {"toy_paint", ""}, "toy_paint-v24.01.golden": {"toy_paint", "v24.01"}, "toy_list.golden": {"toy_list", ""},
	} {
		var r rpcschema.Release
		if c.release != "" {
			r = rpcschema.MustRelease(c.release)
		}
		m, ok := doc.Method(c.method)
		require.True(t, ok)
		var b bytes.Buffer
		require.NoError(t, Show(&b, doc, m, r))
		golden(t, name, b.Bytes())
	}
}

func TestMethodsAreListed(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, List(&b, toys(t).Methods()))
	golden(t, "list.golden", b.Bytes())
}

func toys(t *testing.T) *rpcschema.Document {
	text, err := os.ReadFile("testdata/toys.json")
	require.NoError(t, err)
	doc, err := rpcschema.Load(text)
	require.NoError(t, err)
	return doc
}

// Every method of SPDK has a page that names each of the method's parameters and has no lines that
// are too long for a terminal.
func TestEveryMethodHasAPage(t *testing.T) {
	doc := rpcschema.Default()
	for _, r := range []rpcschema.Release{{}, rpcschema.Oldest, rpcschema.MustRelease("v26.05")} {
		for _, m := range doc.Methods() {
			if !m.Has(r) {
				continue
			}
			var b bytes.Buffer
			require.NoError(t, Show(&b, doc, m, r))
			text := b.String()
			parameters, _, _ := strings.Cut(text, "\nRESULT\n")
			for _, p := range m.Params {
				assert.Equal(t, p.Schema.Has(r), strings.Contains(parameters, "\n  "+p.Name+" "), "%s %s at %s", m.Name, p.Name, r)
			}
			assert.Contains(t, text, `"method": "`+m.Name+`"`)
			for line := range strings.Lines(text) {
				if len(line) > 160 && !strings.Contains(line, "  -") {
					t.Errorf("%s: %d characters: %s", m.Name, len(line), line)
				}
			}
		}
	}
}
