package structure

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The size of each package in the proxy is limited, so that a reader can understand it as a whole.
// Tests and generated files do not count.
func TestProxyPackagesStaySmall(t *testing.T) {
	const mostFiles, mostLines = 25, 3000
	checked := 0
	for _, p := range packages(t) {
		if !within(p.path(), "proxy") {
			continue
		}
		checked++
		files, lines := 0, 0
		for _, f := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if !generated(t, source) {
				files, lines = files+1, lines+bytes.Count(source, []byte("\n"))
			}
		}
		assert.LessOrEqual(t, files, mostFiles, "%s: find a part that a reader can understand alone, and make it a package", p.path())
		assert.LessOrEqual(t, lines, mostLines, "%s: find a part that a reader can understand alone, and make it a package", p.path())
	}
	assert.Greater(t, checked, 20)
}
