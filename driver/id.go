package driver

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// A volumeID names a volume or a snapshot: "target:UUID", as spdk-csi has it. Volumes that were provisioned by hand may
// have the UUID alone; their target is then to be found.
type volumeID struct {
	target string // empty when not told
	uuid   string
}

func (id volumeID) String() string {
	if id.target == "" {
		return id.uuid
	}
	return id.target + ":" + id.uuid
}

var targetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// parseVolumeID reads a volume's or snapshot's id. Only the exact form is taken: one volume must not have two ids, for
// they are what calls are kept apart by. What is refused cannot have come from this driver: it is errNoSuchID.
func parseVolumeID(s string) (volumeID, error) {
	var id volumeID
	target, lvol, qualified := strings.Cut(s, ":")
	if qualified {
		id.target = target
	} else {
		lvol = s
	}
	u, err := uuid.Parse(lvol)
	if err != nil || u.String() != lvol || qualified && !targetName.MatchString(target) {
		return volumeID{}, fmt.Errorf("%w: %q is not of the form TARGET:UUID", errNoSuchID, s)
	}
	id.uuid = lvol
	return id, nil
}

// nodeName is what a node id looks like: CSI has the driver choose it, and Kubernetes' node names fit.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,190}[A-Za-z0-9])?$`)

// checkNodeID refuses ids that no node of this driver can have.
func checkNodeID(s string) error {
	if !nodeName.MatchString(s) {
		return fmt.Errorf("%w: %q is no node's id: 1 to 192 letters, digits, '.', '_' and '-'", errNoSuchID, s)
	}
	return nil
}
