package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// removeStatus removes the status file, even if an earlier process wrote it, so that readers do not
// see outdated findings.
func (m *Monitor) removeStatus() {
	if m.statusFile == "" {
		return
	}
	if err := os.Remove(m.statusFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("cannot remove the status file", "error", err)
	}
}

// reportStatus replaces the status file with the findings of a round. Readers see either the
// previous file or the complete new file. If the file cannot be written, the monitor continues,
// because readers can detect an outdated file.
func (m *Monitor) reportStatus(ctx context.Context, volumes []Volume) {
	if m.statusFile == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	status := m.status(volumes)
	_, err := operation.Share(ctx, &m.reads, "status file", func() (struct{}, error) { return struct{}{}, m.writeStatus(status) })
	if err != nil && !m.unreported {
		m.log.Warn("cannot write the status file: the state of this node's volumes is not reported", "error", err)
	}
	m.unreported = err != nil
}

func (m *Monitor) status(volumes []Volume) inventory.Staged {
	status := inventory.Staged{Checked: m.now().UTC().Truncate(time.Second), IntervalSeconds: m.interval.Seconds(), Volumes: []inventory.StagedVolume{}}
	for _, v := range volumes {
		s, ok := m.State(v.ID)
		if !ok { // a call is working on the volume
			s.Findings = []Finding{{Kind: Unknown, Text: "a call is working on the volume"}}
		}
		listed := inventory.StagedVolume{ID: v.ID, Target: v.Target, State: string(s.Kind()), LivePaths: s.Live, ExpectedPaths: s.Expected}
		for _, f := range s.Findings {
			listed.Findings = append(listed.Findings, f.Text)
		}
		status.Volumes = append(status.Volumes, listed)
	}
	return status
}

func (m *Monitor) writeStatus(status inventory.Staged) error {
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.statusFile+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(m.statusFile+".new", m.statusFile)
}
