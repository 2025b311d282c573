package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFilesListsEveryNamedFile(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/x")
	c := &Config{
		file: "/etc/p/p.yaml", dir: "/etc/p",
		TLS: TLS{CertFile: "tls/both.pem", KeyFile: "tls/both.pem"},
		Users: []User{
			{Name: "a", PasswordHashFile: "$CREDENTIALS_DIRECTORY/a"},
			{Name: "b", PasswordHash: "not a file"},
			{Name: "c", PasswordHashFile: "/else/c"},
		},
	}
	assert.Equal(t, []string{"/else/c", "/etc/p/p.yaml", "/etc/p/tls/both.pem", "/run/credentials/x/a"}, c.Files())
}

func TestLoadedConfigurationListsItsFiles(t *testing.T) {
	c, err := Load("testdata/least.good.yml")
	require.NoError(t, err)
	assert.Equal(t, []string{"testdata/hash", "testdata/least.good.yml"}, c.Files())
}
