package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsersAreHidden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uid_map")
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                                   false,
		"         0          0      65536\n":                                   false,
		"         0          0          1\n       998        998          1\n": true,
		"": true,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		assert.Equal(t, want, usersAreHidden(path), text)
	}
	assert.False(t, usersAreHidden(path+".missing"))
}
