package proxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// loadAndCheck checks a configuration as check-config does.
func loadAndCheck(path string) (*config.Config, error) {
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	return c, check(c, rpcschema.Default())
}

func TestValidConfigsAreAccepted(t *testing.T) {
	paths, err := filepath.Glob("config/testdata/*.good.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		_, err := loadAndCheck(path)
		require.NoError(t, err, path)
	}
}

// The first line of each *.bad.yml file contains the expected error.
func TestInvalidConfigsAreRejected(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	paths, err := filepath.Glob("config/testdata/*.bad.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			first, _, _ := strings.Cut(string(text), "\n")
			says, ok := strings.CutPrefix(first, "# says: ")
			require.True(t, ok)
			_, err = loadAndCheck(path)
			require.ErrorContains(t, err, says)
			assert.NotContains(t, err.Error(), "hunter2", "values may be secret")
		})
	}
}

func TestSettingsMatchTheConfiguration(t *testing.T) {
	c, err := config.Load("config/testdata/full.good.yml")
	require.NoError(t, err)
	s, err := gate.NewSettings(c, rpcschema.Default(), nil)
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, s.TimeoutOf("bdev_get_bdevs"))
	assert.Equal(t, time.Second, s.TimeoutOf("spdk_get_version"))
	assert.Equal(t, 2*time.Hour, s.TimeoutOf("bdev_lvol_inflate"))
	assert.Equal(t, 10*time.Minute, s.TimeoutOf("bdev_lvol_create_lvstore"), "slow methods have a longer timeout")
	assert.Equal(t, 32<<10, s.MaxBody)
	assert.True(t, s.Policy.Decide("monitoring", "bdev_get_bdevs").Allowed)
	assert.False(t, s.Policy.Decide("monitoring", "bdev_lvol_delete").Allowed)
}

func TestFilesInTheCredentialsDirectoryAreRead(t *testing.T) {
	dir := t.TempDir()
	hash, err := os.ReadFile("config/testdata/hash")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "admin"), hash, 0o600))
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	_, err = loadAndCheck("config/testdata/credentials_not_set.bad.yml")
	require.NoError(t, err)
}

func TestInstalledExampleIsValid(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	hash, err := os.ReadFile("config/testdata/hash")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("CREDENTIALS_DIRECTORY"), "secrets_admin.hash"), hash, 0o600))
	_, err = loadAndCheck("../systemd/spdk-proxy.yaml")
	require.NoError(t, err)
}

func write(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// check-config reports all mistakes at once: a misspelled key does not hide mistakes in roles.
func TestCheckFileReportsAllMistakes(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "spdk-proxy.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := "listen: 127.0.0.1:9009\ntls: {insecure_plaintext: true}\nusers:\n- {name: ann, password_hash: '" + hashes()[adminPassword] + "', roles: [admin]}\n"
	c, err := CheckFile(file(good), rpcschema.Default())
	require.NoError(t, err)
	assert.NotNil(t, c)
	const roles = "roles:\n  r: {allow: [no_such_method]}\n"
	path := file("lissten: x\n" + roles)
	c, err = CheckFile(path, rpcschema.Default())
	assert.Nil(t, c)
	require.ErrorContains(t, err, "lissten")
	require.ErrorContains(t, err, "no_such_method")
	require.ErrorContains(t, err, path)
	path = file(good + roles)
	c, err = CheckFile(path, rpcschema.Default())
	assert.Nil(t, c)
	require.ErrorContains(t, err, "no_such_method")
	require.ErrorContains(t, err, path)
	_, err = CheckFile(filepath.Join(t.TempDir(), "missing"), rpcschema.Default())
	require.ErrorContains(t, err, "there is no configuration")
}
