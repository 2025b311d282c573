package request

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// A VolumeID identifies a volume or a snapshot. Its format is "target:UUID", as in SPDK's spdk-csi.
// The id of a manually provisioned volume may consist of only the UUID; in that case, the
// controller must find the volume's target.
type VolumeID struct {
	Target string // empty if the id contains no target
	UUID   string
}

// String returns the id as in CSI messages.
func (id VolumeID) String() string {
	if id.Target == "" {
		return id.UUID
	}
	return id.Target + ":" + id.UUID
}

var targetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// IsTargetName reports whether a target can have this name, which becomes part of volume ids.
func IsTargetName(s string) bool { return targetName.MatchString(s) && s != ReplicatedTarget }

// ParseVolumeID parses the id of a volume or snapshot. It accepts only the exact form, because ids
// identify locks, and a volume must not have two ids. For any other form, the error wraps
// [ErrNoSuchID], because this driver has never issued such an id.
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

// nodeName matches node ids. CSI lets the driver choose the format of node ids. This format
// includes all node names of Kubernetes.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,190}[A-Za-z0-9])?$`)

// CheckNodeID rejects ids that a node of this driver cannot have.
func CheckNodeID(s string) error {
	if !nodeName.MatchString(s) {
		return fmt.Errorf("%w: %q is not a node's id: use 1 to 192 letters, digits, '.', '_' and '-'", ErrNoSuchID, s)
	}
	return nil
}

// MovePrepareNode returns the id of the node that a copy is published to from spdk-csi move
// --prepare until the volume is moved.
func MovePrepareNode(volumeUUID string) string { return "prepare-move-" + volumeUUID }

// The names of the objects that spdk-csi move creates for the volume with the given UUID: its copy,
// the snapshot that --prepare copies, and the temporary volume that --prepare uses to read that
// snapshot. A repeated command finds the objects by these names.
func MoveCopyName(volumeUUID string) string   { return "move-" + volumeUUID }
func MoveBaseName(volumeUUID string) string   { return "move-base-" + volumeUUID }
func MoveSourceName(volumeUUID string) string { return "move-source-" + volumeUUID }
