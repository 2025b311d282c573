package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The driver's code must contain the messages that the troubleshooting page quotes. Dots in quoted
// messages stand for variable parts.
func TestTroubleshootingMessagesExist(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/csi-troubleshooting.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Messages from the driver\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var code strings.Builder
	for _, folder := range []string{"driver", "rpcschema/spdkrpc"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		}))
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1)
	require.Greater(t, len(rows), 20)
	for _, row := range rows {
		for part := range strings.SplitSeq(row[1], "…") {
			if part = strings.TrimSpace(part); part != "" {
				assert.True(t, strings.Contains(code.String(), part), "no message of the driver is %q", row[1])
			}
		}
	}
}
