package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Freeze says where it stands in a journal what is frozen for snapshots.
// Without a folder nothing is frozen.
type Freeze struct {
	Dir string `yaml:"dir" empty:"no"`
}

// What becomes of bdev_lvol_snapshot of a volume that hosts use.
const (
	SnapshotsRefuse = "refuse" // refused, and told the safe method
	SnapshotsFreeze = "freeze" // done as spdkgate_lvol_snapshot does
	SnapshotsAllow  = "allow"  // sent to SPDK as it stands
)

var snapshotsInUse = []string{SnapshotsRefuse, SnapshotsFreeze, SnapshotsAllow}

func (c *Config) validateFreeze() error {
	t := &c.Target
	var wrong []error
	if !slices.Contains(snapshotsInUse, t.SnapshotsInUse) {
		wrong = append(wrong, fmt.Errorf("target.snapshots_in_use: give one of %s", strings.Join(snapshotsInUse, ", ")))
	}
	if t.Freeze.Dir == "" {
		if t.SnapshotsInUse == SnapshotsFreeze {
			wrong = append(wrong, errors.New("target.snapshots_in_use: freeze needs a journal: give target.freeze.dir"))
		}
		return errors.Join(wrong...)
	}
	var err error
	t.Freeze.Dir, err = c.path(t.Freeze.Dir)
	wrong = append(wrong, err)
	for key, dir := range map[string]string{"target.save.dir": t.Save.Dir, "target.keys.dir": t.Keys.Dir} {
		if dir != "" && filepath.Clean(dir) == filepath.Clean(t.Freeze.Dir) {
			wrong = append(wrong, fmt.Errorf("target.freeze.dir and %s must be two folders", key))
		}
	}
	return errors.Join(wrong...)
}
