package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// User names appear in logs, commands and the console, so unsafe characters in them are rejected.
func TestUnsafeUserNamesAreRejected(t *testing.T) {
	const user = "listen: \":1\"\nusers: [{name: \"NAME\", token_hashes: [], roles: [admin]}]\n"
	for _, name := range []string{`a\u202eb`, `a\u009bb`, `a\nb`, `a\u2028b`} {
		_, err := Load(writeFile(t, strings.ReplaceAll(user, "NAME", name)))
		require.ErrorContains(t, err, "the name", name)
		require.ErrorContains(t, err, "remove them", name)
	}
	_, err := Load(writeFile(t, strings.ReplaceAll(user, "NAME", "größe")))
	if err != nil {
		require.NotContains(t, err.Error(), "remove them")
	}
}
