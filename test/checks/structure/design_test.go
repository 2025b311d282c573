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

var roomName = regexp.MustCompile("`([^`]+)`")

// roomsOf returns the rooms in the first column of the table in the section Rooms of a page, in
// their order.
func roomsOf(page string) (listed []string) {
	_, section, _ := strings.Cut(page, "\n## Rooms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		first, _, row := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !row || !strings.HasPrefix(line, "|") {
			continue
		}
		for _, name := range roomName.FindAllStringSubmatch(first, -1) {
			listed = append(listed, name[1])
		}
	}
	return listed
}

// The table shows a new reader the place for a change. It has every package of proxy, driver,
// lvstore and rpcschema once, and no package that does not exist.
func TestDesignListsEveryRoom(t *testing.T) {
	text, err := os.ReadFile("../../../docs/design/rooms.md")
	require.NoError(t, err)
	listed := roomsOf(string(text))
	require.NotEmpty(t, listed)
	var there []string
	for _, p := range packages(t) {
		if within(p.path(), "proxy", "driver", "lvstore", "rpcschema") {
			there = append(there, p.path())
		}
	}
	for _, room := range there {
		n := len(slices.DeleteFunc(slices.Clone(listed), func(l string) bool { return l != room }))
		assert.Equal(t, 1, n, "%s is %d times in the table of docs/design/rooms.md: give it one row with what it contains and must not know", room, n)
	}
	for _, room := range listed {
		if !strings.HasSuffix(room, "/…") { // a folder of packages, such as cmd/…
			assert.Contains(t, there, room, "docs/design/rooms.md has a row for %s, which is not a package", room)
		}
	}
}

func TestRoomsAreReadFromTheTable(t *testing.T) {
	const design = "# D\n\n## Rooms\n| Room | Holds |\n|---|---|\n| `a`, `b/c` | `not this` |\n| `cmd/…` | flags |\n\nAnd `text`.\n\n## Else\n| `d` | |\n"
	assert.Equal(t, []string{"a", "b/c", "cmd/…"}, roomsOf(design))
}
