package service

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

func TestUserNamespaceHidesUsers(t *testing.T) {
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

// The service warns about hidden users only if it has a local socket, because it must identify that
// socket's users.
func TestHiddenUsersCauseAWarning(t *testing.T) {
	hidden, all := filepath.Join(t.TempDir(), "hidden"), filepath.Join(t.TempDir(), "all")
	require.NoError(t, os.WriteFile(hidden, []byte("0 0 1\n"), 0o600))
	require.NoError(t, os.WriteFile(all, []byte("0 0 4294967295\n"), 0o600))
	for _, c := range []struct {
		socket, users string
		want          bool
	}{{"/run/x.sock", hidden, true}, {"/run/x.sock", all, false}, {"", hidden, false}, {"", all, false}} {
		var log bytes.Buffer
		warn(slog.New(slog.NewTextHandler(&log, nil)), &config.Config{ListenUnix: config.ListenUnix{Path: c.socket}}, c.users)
		assert.Equal(t, c.want, strings.Contains(log.String(), "PrivateUsers=no"), "%+v", c)
	}
}
