package config

import "fmt"

// A Snapshots configures how snapshots are deleted. All keys have defaults.
type Snapshots struct {
	// DeleteWithClones controls the deletion of a snapshot from which several existing volumes were
	// made. "refuse", the default, returns an error; "detach" first copies the snapshot's data into
	// them.
	DeleteWithClones string `json:"deleteWithClones,omitzero"`
}

// The values of DeleteWithClones.
const (
	refuseWithClones = "refuse"
	detachClones     = "detach"
)

func (s *Snapshots) check() error {
	switch s.DeleteWithClones {
	case "", refuseWithClones, detachClones:
		return nil
	}
	return fmt.Errorf("snapshots: deleteWithClones is %q; it must be %s or %s", s.DeleteWithClones, refuseWithClones, detachClones)
}

// DetachClones reports whether the clones of a snapshot are detached before the snapshot is
// deleted.
func (s Snapshots) DetachClones() bool { return s.DeleteWithClones == detachClones }
