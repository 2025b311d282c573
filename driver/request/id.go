package request

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// A VolumeID names a volume or a snapshot: "target:UUID", as spdk-csi has it. Volumes that were provisioned by hand may
// have the UUID alone; their target is then to be found.
type VolumeID struct {
	Target string // empty when the id does not name it
	UUID   string
}

// String returns the id as CSI's messages have it.
func (id VolumeID) String() string {
	if id.Target == "" {
		return id.UUID
	}
	return id.Target + ":" + id.UUID
}

var targetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// IsTargetName reports whether a target can have this name: it becomes part of volume ids.
func IsTargetName(s string) bool { return targetName.MatchString(s) }

// ParseVolumeID reads a volume's or snapshot's id. Only the exact form is taken: one volume must not have two ids, for
// calls are kept apart by their ids. What is refused cannot have come from this driver: the error is of kind [ErrNoSuchID].
func ParseVolumeID(s string) (VolumeID, error) {
	var id VolumeID
	target, lvol, qualified := strings.Cut(s, ":")
	if qualified {
		id.Target = target
	} else {
		lvol = s
	}
	u, err := uuid.Parse(lvol)
	if err != nil || u.String() != lvol || qualified && !targetName.MatchString(target) {
		return VolumeID{}, fmt.Errorf("%w: %q is not of the form TARGET:UUID", ErrNoSuchID, s)
	}
	id.UUID = lvol
	return id, nil
}

// nodeName matches node ids. CSI lets the driver choose their form; Kubernetes' node names fit.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,190}[A-Za-z0-9])?$`)

// CheckNodeID refuses ids that no node of this driver can have.
func CheckNodeID(s string) error {
	if !nodeName.MatchString(s) {
		return fmt.Errorf("%w: %q is not a node's id: use 1 to 192 letters, digits, '.', '_' and '-'", ErrNoSuchID, s)
	}
	return nil
}
