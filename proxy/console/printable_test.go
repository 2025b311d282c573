package console

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// The console's source and built files escape the same characters as the programs.
func TestPageEscapesUnsafeCharacters(t *testing.T) {
	source, err := os.ReadFile("web/src/printable.ts")
	require.NoError(t, err)
	class := regexp.MustCompile(`(?m)^const unsafe = /(\[.*\])/g;$`).FindSubmatch(source)
	require.NotNil(t, class)
	unsafe := regexp.MustCompile(regexp.MustCompile(`\\u([0-9a-f]{4})`).ReplaceAllString(string(class[1]), `\x{$1}`))
	for r := rune(0); r <= 0xffff; r++ {
		if r >= 0xd800 && r < 0xe000 || r == '\n' || r == '\t' {
			continue
		}
		if unsafe.MatchString(string(r)) != printable.Unsafe(r) {
			t.Errorf("%U: the page and package printable disagree", r)
		}
	}
	built, err := fs.Glob(os.DirFS("dist"), "assets/*.js")
	require.NoError(t, err)
	require.Len(t, built, 1)
	script, err := os.ReadFile("dist/" + built[0])
	require.NoError(t, err)
	assert.Contains(t, string(script), string(class[1]), "main.tsx calls escapeText: run make console")
	assert.True(t, strings.Contains(string(script), ".vnode="), "Preact's hook is set")
}
