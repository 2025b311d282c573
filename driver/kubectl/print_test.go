package kubectl

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// A name from the cluster cannot start a new row or send control sequences to the terminal.
func TestTablesEscapeNames(t *testing.T) {
	name := "a\nb\t\x1b[2J\u009b\u202e\u2066\u2028"
	columns := []column[string]{{heading: "NAME", cell: func(s string) string { return s }}, {heading: "STORE", cell: func(s string) string { return s }}}
	var b bytes.Buffer
	require.NoError(t, printRows(&b, Table, columns, []string{name}))
	assert.Equal(t, 2, strings.Count(b.String(), "\n"))
	for line := range strings.Lines(b.String()) {
		assert.True(t, printable.Valid(strings.TrimSuffix(line, "\n")), "%q", line)
	}
	assert.Contains(t, b.String(), `\u001b[2J\u009b\u202e\u2066\u2028`)
	b.Reset()
	require.NoError(t, printRows(&b, YAML, columns, []string{name}), "YAML has no control characters")
	assert.NotContains(t, b.String(), "\u009b")
}
