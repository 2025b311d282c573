package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Freeze names the directory of the journal of frozen volumes. The default is the directory frozen
// in $STATE_DIRECTORY, which systemd sets for services with a state directory. Without a directory,
// no volume is ever frozen.
type Freeze struct {
	Dir string `yaml:"dir" empty:"no"`
}

// StateDir returns the directory for the proxy's persistent state, or "" if there is none. It is
// target.save.dir or, if that is not set, $STATE_DIRECTORY.
func (c *Config) StateDir() string {
	if c.Target.Save.Dir != "" {
		return c.Target.Save.Dir
	}
	return stateDirectory()
}

// stateDirectory returns the service's state directory, if there is one.
func stateDirectory() string {
	state, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	return state
}

// These values select what happens when bdev_lvol_snapshot is called for a volume that hosts are
// using.
const (
	SnapshotsRefuse = "refuse" // refuse the call, and name the safe method
	SnapshotsFreeze = "freeze" // freeze the volume, like spdkgate_lvol_snapshot
	SnapshotsAllow  = "allow"  // send the call to SPDK unchanged
)

var snapshotsInUse = []string{SnapshotsRefuse, SnapshotsFreeze, SnapshotsAllow}

func (c *Config) validateFreeze() error {
	t := &c.Target
	var wrong []error
	if !slices.Contains(snapshotsInUse, t.SnapshotsInUse) {
		wrong = append(wrong, fmt.Errorf("target.snapshots_in_use must be one of %s", strings.Join(snapshotsInUse, ", ")))
	}
	if state := stateDirectory(); state != "" && t.Freeze.Dir == "" {
		t.Freeze.Dir = filepath.Join(state, "frozen")
	}
	if t.Freeze.Dir == "" {
		if t.SnapshotsInUse == SnapshotsFreeze {
			wrong = append(wrong, errors.New("target.snapshots_in_use: freeze needs a journal: set target.freeze.dir"))
		}
		return errors.Join(wrong...)
	}
	var err error
	t.Freeze.Dir, err = c.path(t.Freeze.Dir)
	wrong = append(wrong, err)
	for key, dir := range map[string]string{"target.save.dir": t.Save.Dir, "target.keys.dir": t.Keys.Dir} {
		if dir != "" && filepath.Clean(dir) == filepath.Clean(t.Freeze.Dir) {
			wrong = append(wrong, fmt.Errorf("target.freeze.dir and %s must be different directories", key))
		}
	}
	return errors.Join(wrong...)
}
