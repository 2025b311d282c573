package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/inventory"
)

// The command node-status prints the findings of the running node plugin. It fails if the plugin's
// report is missing or outdated, because the state is then unknown.
func TestNodeStatusPrintsFindings(t *testing.T) {
	dir := t.TempDir()
	read := func() (s inventory.NodeStatus, err error) {
		out, err := runCommand(t, "node-status", "--node-state-dir="+dir)
		require.NoError(t, json.Unmarshal([]byte(out), &s), out)
		assert.Equal(t, versionText(), s.Version)
		assert.NotNil(t, s.Transports)
		return s, err
	}
	s, err := read()
	require.ErrorContains(t, err, "has not checked its volumes")
	assert.Nil(t, s.Staged)
	assert.Equal(t, err.Error(), s.Problem)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		cmd := command(new(drivertest.Log))
		cmd.SetArgs([]string{"--node", "--nodeid=a", "--endpoint=unix://" + filepath.Join(dir, "csi.sock"), "--node-health-interval=1s"})
		ended <- cmd.ExecuteContext(ctx)
	}()
	path := filepath.Join(dir, statusFile)
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, 5*time.Millisecond)
	s, err = read()
	require.NoError(t, err)
	assert.Empty(t, s.Problem)
	assert.Empty(t, s.Staged.Volumes)
	assert.InDelta(t, 1, s.Staged.IntervalSeconds, 0)
	stop()
	require.NoError(t, <-ended)
	assert.NoFileExists(t, path, "the state is unknown after the plugin has stopped")

	for name, text := range map[string]string{
		"not within the last 2m0s": `{"checked": "` + time.Now().Add(-3*time.Minute).UTC().Format(time.RFC3339) + `", "intervalSeconds": 30, "volumes": []}`,
		"not within the last 1m2s": `{"checked": "` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `", "intervalSeconds": 1, "volumes": []}`,
		statusFile:                 `{`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s, err = read()
		require.ErrorContains(t, err, name)
		assert.Nil(t, s.Staged)
	}
}
