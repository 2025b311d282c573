package structure

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var packageName = regexp.MustCompile("`([^`]+)`")

// packagesOf returns, in order, the packages in the first column of the table in a page's section
// "Packages".
func packagesOf(page string) (listed []string) {
	_, section, _ := strings.Cut(page, "\n## Packages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		first, _, row := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !row || !strings.HasPrefix(line, "|") {
			continue
		}
		for _, found := range packageName.FindAllStringSubmatch(first, -1) {
			listed = append(listed, found[1])
		}
	}
	return listed
}

// The table of packages shows newcomers where a change belongs. It must list every package in
// proxy, driver, lvstore and rpcschema exactly once, and only existing packages.
func TestDesignListsEveryPackage(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/packages.md")
	require.NoError(t, err)
	listed := packagesOf(string(text))
	require.NotEmpty(t, listed)
	var there []string
	for _, p := range packages(t) {
		if within(p.path(), "proxy", "driver", "lvstore", "rpcschema") {
			there = append(there, p.path())
		}
	}
	for _, name := range there {
		n := len(slices.DeleteFunc(slices.Clone(listed), func(l string) bool { return l != name }))
		assert.Equal(t, 1, n, "%s is %d times in the table of docs/design/packages.md: give it one row with what it contains and must not know", name, n)
	}
	for _, name := range listed {
		if !strings.HasSuffix(name, "/…") { // a row for several packages, such as cmd/…
			assert.Contains(t, there, name, "docs/design/packages.md has a row for %s, which is not a package", name)
		}
	}
}

func TestPackagesAreReadFromTheTable(t *testing.T) {
	const design = "# D\n\n## Packages\n| Package | Holds |\n|---|---|\n| `a`, `b/c` | `not this` |\n| `cmd/…` | flags |\n\nAnd `text`.\n\n## Else\n| `d` | |\n"
	assert.Equal(t, []string{"a", "b/c", "cmd/…"}, packagesOf(design))
}
