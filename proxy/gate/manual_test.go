package gate

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The statuses in the manual's table of status codes are exactly those in the table of errors.
func TestManualListsEveryStatusCode(t *testing.T) {
	page, err := os.ReadFile("../../docs/wire.md")
	require.NoError(t, err)
	var listed []int
	for _, m := range regexp.MustCompile(`(?m)^\| (\d{3}) \|`).FindAllSubmatch(page, -1) {
		status, err := strconv.Atoi(string(m[1]))
		require.NoError(t, err)
		listed = append(listed, status)
	}
	returned := []int{200}
	for _, r := range rows {
		if r.status != StatusClientGone { // this status appears only in the log
			returned = append(returned, r.status)
		}
	}
	slices.Sort(returned)
	assert.Equal(t, slices.Compact(returned), listed)
}

// Each row of the table of errors has a unique name, a code and a message.
func TestErrorRowsAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, r := range rows {
		assert.NotEmpty(t, r.name)
		assert.False(t, names[r.name], r.name)
		names[r.name] = true
		assert.True(t, r.code != 0 || r.fill != nil, "%s: an error without a code", r.name)
		assert.True(t, r.text != "" || r.fill != nil, "%s: an error without a text", r.name)
	}
}
