package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/move"
)

const unreachable = `{"nodes": [{"name": "t0", "rpcURL": "http://127.0.0.1:1", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1"}]}`

// Each command that reads config.json and the credentials fails if either file is missing or
// malformed, and its error names the file or the variable.
func TestCommandsNeedAConfigurationAndCredentials(t *testing.T) {
	const id = "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	commands := map[string][]string{
		"inventory": {"inventory"}, "fenced nodes": {"inventory", "--fenced"}, "snapshots": {"inventory", "--snapshot", id},
		"doctor": {"doctor", "--wait=0"}, "fence": {"fence", "--node=n1"}, "unfence": {"unfence", "--node=n1"},
		"move": {"move", "--volume", id},
	}
	for name, args := range commands {
		configure(t, unreachable, `{"rpcTokens": [{"name": "t0", "username": "u", "password": "p"}]}`)
		missing := filepath.Join(t.TempDir(), "missing")
		configPath, secretPath := os.Getenv(config.PathEnv), os.Getenv(config.CredentialsEnv)
		t.Setenv(config.PathEnv, missing)
		_, err := runCommand(t, args...)
		require.ErrorIs(t, err, os.ErrNotExist, name)
		require.ErrorContains(t, err, config.PathEnv, name)

		t.Setenv(config.PathEnv, configPath)
		t.Setenv(config.CredentialsEnv, missing)
		_, err = runCommand(t, args...)
		require.ErrorContains(t, err, config.CredentialsEnv, name)

		t.Setenv(config.CredentialsEnv, secretPath)
		require.NoError(t, os.WriteFile(secretPath, []byte("{"), 0o600))
		_, err = runCommand(t, args...)
		require.ErrorContains(t, err, "secret.json", name)

		require.NoError(t, os.WriteFile(secretPath, []byte(`{"rpcTokens": [{"name": "t0", "username": "u", "password": "p"}]}`), 0o600))
		_, err = runCommand(t, args...)
		if name == "doctor" { // doctor reports the unreachable target as a finding
			require.ErrorIs(t, err, exitCode{code: exitFindings})
		} else {
			require.ErrorContains(t, err, "t0", "%s: the target is unreachable", name)
		}
		require.NotContains(t, err.Error(), config.PathEnv, name)

		require.NoError(t, os.WriteFile(configPath, []byte(`{"nodes": 1}`), 0o600))
		_, err = runCommand(t, args...)
		require.ErrorContains(t, err, "config.json", name)
	}
}

// Progress is printed when a phase ends, and otherwise at most once every five seconds, with an
// estimate of the remaining time.
func TestProgressIsPrintedEveryFiveSeconds(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	show := progress(&out, func() time.Time { return now })
	printed := func(after time.Duration, p move.Progress) string {
		now = now.Add(after)
		out.Reset()
		show(p)
		return out.String()
	}
	const mib = 1 << 20
	at := func(done int64) move.Progress {
		return move.Progress{Phase: "copy", Done: done * mib, Total: 100 * mib}
	}
	assert.Equal(t, "copy: 0.0 MiB of 100.0 MiB\n", printed(0, at(0)), "no estimate")
	assert.Empty(t, printed(4*time.Second, at(10)))
	assert.Empty(t, printed(time.Second-1, at(12)))
	assert.Equal(t, "copy: 20.0 MiB of 100.0 MiB, about 20s left\n", printed(1, at(20)))
	assert.Equal(t, "copy: 50.0 MiB of 100.0 MiB, about 10s left\n", printed(5*time.Second, at(50)))
	assert.Equal(t, "copy: 100.0 MiB of 100.0 MiB\n", printed(time.Second, at(100)), "the phase ends")
	assert.Equal(t, "verify: 100.0 MiB of 100.0 MiB\n", printed(0, move.Progress{Phase: "verify", Done: 100 * mib, Total: 100 * mib}))
	assert.Equal(t, "verify: 25.0 MiB of 100.0 MiB, about 15s left\n", printed(5*time.Second, move.Progress{Phase: "verify", Done: 25 * mib, Total: 100 * mib}))
}

func TestSizesArePrintedInMiBOrGiB(t *testing.T) {
	for n, want := range map[int64]string{0: "0.0 MiB", 1 << 19: "0.5 MiB", 1<<30 - 1<<20: "1023.0 MiB", 1 << 30: "1.0 GiB", 5 << 29: "2.5 GiB"} {
		assert.Equal(t, want, size(n))
	}
}

// A malformed, unreadable or outdated node status is rejected.
func TestStaleOrMalformedNodeStatusIsRejected(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "status.json")
	_, err := readStatus(path, time.Now())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "--node-health-interval")
	_, err = readStatus(dir, time.Now())
	require.NotErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, dir)
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = readStatus(path, time.Now())
	require.ErrorContains(t, err, path)
	checked := time.Unix(1_800_000_000, 0).UTC()
	text, err := json.Marshal(inventory.Staged{Checked: checked, IntervalSeconds: 30})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	for age, valid := range map[time.Duration]bool{
		-time.Minute - time.Second: false, -time.Minute: true, 0: true, 2 * time.Minute: true, 2*time.Minute + time.Second: false,
	} {
		s, err := readStatus(path, checked.Add(age))
		assert.Equal(t, valid, err == nil, "%s: %v", age, err)
		assert.Equal(t, checked, s.Checked)
	}
}
