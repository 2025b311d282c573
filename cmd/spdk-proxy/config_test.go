package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// check-config reports all mistakes in one run; misspelled keys do not hide invalid roles.
func TestCheckConfigReportsAllMistakes(t *testing.T) {
	path := writeConfig(t, "/s", "limits: {drane: 5s}\nroles2: {}\ntarget2: {}")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("spdk_kill_instance"), []byte("bdev_get_bdves"), 1), 0o600))
	o := run(t, "", "check-config", path)
	assert.Equal(t, exitFailed, o.code)
	for _, says := range []string{"limits.drane is not a key", "roles2 is not a key", "bdev_get_bdves"} {
		assert.Contains(t, o.stderr, says)
	}
	for line := range strings.Lines(strings.TrimPrefix(o.stderr, "spdk-proxy: ")) {
		assert.True(t, strings.HasPrefix(line, path+": "), "%s", line)
	}
}

// check-config refuses the same directories and files as serve, without changing any of them.
func TestCheckConfigRefusesTheSameFilesAsServe(t *testing.T) {
	for key, c := range map[string]struct{ set, remedy string }{
		"target.save.dir":   {"save: {dir: place}", "chmod 700"},
		"target.keys.dir":   {"keys: {dir: PLACE}", "chmod 700"},
		"target.freeze.dir": {"freeze: {dir: place}", "chmod 700"},
		"log.calls.path":    {"", "chmod 600"},
	} {
		t.Run(key, func(t *testing.T) {
			more := ""
			if c.set == "" {
				more = "log: {calls: {to: file, path: place}}"
			}
			path := writeConfig(t, "/s", more)
			place := filepath.Join(filepath.Dir(path), "place")
			if c.set != "" {
				change(t, path, "socket: /s", "socket: /s, "+strings.Replace(c.set, "PLACE", place, 1))
			}
			assert.Zero(t, run(t, "", "check-config", path).code, "it is missing")
			require.NoFileExists(t, place)
			if c.set != "" {
				require.NoError(t, os.Mkdir(place, 0o700))
			} else {
				require.NoError(t, os.WriteFile(place, nil, 0o600))
			}
			assert.Zero(t, run(t, "", "check-config", path).code, "it is private")
			require.NoError(t, os.Chmod(place, 0o755))
			for _, args := range [][]string{{"check-config", path}, {"serve", "--config", path}} {
				o := run(t, "", args...)
				assert.Equal(t, exitFailed, o.code)
				assert.Contains(t, o.stderr, c.remedy, args)
			}
			assert.Contains(t, run(t, "", "check-config", path).stderr, path+": "+key+": ")
		})
	}
}

// Like serve, check-config refuses damaged files in the state directory.
func TestCheckConfigRefusesDamagedState(t *testing.T) {
	path := writeConfig(t, "/s", "")
	dir := filepath.Join(filepath.Dir(path), "state")
	require.NoError(t, os.Mkdir(dir, 0o700))
	change(t, path, "socket: /s", "socket: /s, save: {dir: state}")
	damaged := func(file, remedy string) {
		t.Helper()
		place := filepath.Join(dir, file)
		assert.Zero(t, run(t, "", "check-config", path).code)
		require.NoError(t, os.WriteFile(place, []byte("{"), 0o600))
		for _, args := range [][]string{{"check-config", path}, {"serve", "--config", path}} {
			o := run(t, "", args...)
			assert.Equal(t, exitFailed, o.code)
			assert.Contains(t, o.stderr, remedy, args)
		}
		require.NoError(t, os.Remove(place))
	}
	damaged("subsystem-owners", "Restore this file")
	change(t, path, "self_signed_dir: .", "self_signed_dir: state")
	damaged("tls.crt", "remove both")
	assert.NoFileExists(t, filepath.Join(dir, "tls.key"))
}

func TestCheckConfigWarnsAboutMissingSaveAndFreeze(t *testing.T) {
	path := writeConfig(t, "/s", "")
	assert.Equal(t, outcome{path + " is valid: 1 user, 1 role\n", notSaved + notFrozen, 0}, run(t, "", "check-config", path))
	change(t, path, "socket: /s", "socket: /s, save: {dir: saved}")
	assert.Equal(t, outcome{path + " is valid: 1 user, 1 role\n", notFrozen, 0}, run(t, "", "check-config", path))
	change(t, path, "socket: /s", "socket: /s, freeze: {dir: frozen}")
	assert.Equal(t, outcome{path + " is valid: 1 user, 1 role\n", "", 0}, run(t, "", "check-config", path))
}
