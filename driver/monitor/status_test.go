package monitor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/inventory"
)

// After each round, the status file describes every staged volume. A file from an earlier process
// is removed.
func TestStatusFileDescribesStagedVolumes(t *testing.T) {
	m, f := newFakeNode(t)
	m.statusFile = filepath.Join(t.TempDir(), "node-status.json")
	read := func() (s inventory.Staged) {
		text, err := os.ReadFile(m.statusFile)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &s))
		return s
	}
	require.NoError(t, os.WriteFile(m.statusFile, []byte("of an earlier process"), 0o600))
	m.removeStatus()
	assert.NoFileExists(t, m.statusFile)
	m.removeStatus()
	assert.Empty(t, f.log.String())

	m.Check(t.Context())
	assert.Equal(t, inventory.Staged{Checked: f.clock.UTC(), IntervalSeconds: 30, Volumes: []inventory.StagedVolume{}}, read(), "no volume is staged, which differs from unknown")
	f.volumes = []Volume{{ID: "t0:a", Target: "t0", Export: connect.Export{NQN: "a"}}}
	f.paths["a"] = connect.Paths{Expected: 2, All: []connect.Path{{State: "live", Live: true}, {State: "connecting"}}}
	f.clock = f.clock.Add(time.Minute)
	m.Check(t.Context())
	s := read()
	assert.Equal(t, f.clock.UTC(), s.Checked)
	require.Len(t, s.Volumes, 1)
	assert.Equal(t, []any{"t0:a", "t0", "paths_lost", 1, 2}, []any{s.Volumes[0].ID, s.Volumes[0].Target, s.Volumes[0].State, s.Volumes[0].LivePaths, s.Volumes[0].ExpectedPaths})
	assert.Contains(t, strings.Join(s.Volumes[0].Findings, " "), "1 of 2 paths work")

	// A volume that a call is changing is listed with an unknown state.
	m.Forget("t0:a")
	f.busy = true
	m.Check(t.Context())
	assert.Equal(t, []inventory.StagedVolume{{ID: "t0:a", Target: "t0", State: "unknown", Findings: []string{"a call is working on the volume"}}}, read().Volumes)
	f.busy = false

	// If the list of volumes cannot be read, the status file is not updated.
	f.err = assert.AnError
	f.clock = f.clock.Add(time.Minute)
	m.Check(t.Context())
	assert.Equal(t, f.clock.Add(-time.Minute).UTC(), read().Checked)
	f.err = nil

	// A failure to write the status file is logged only once.
	m.statusFile = filepath.Join(t.TempDir(), "none", "node-status.json")
	m.Check(t.Context())
	m.Check(t.Context())
	assert.Equal(t, 1, strings.Count(f.log.String(), "cannot write the status file"), f.log.String())
}
