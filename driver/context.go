package driver

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// Keys of volume contexts beside those of package connect.
const (
	keyStore  = "lvstore" // as spdk-csi has it
	keyFSType = "fsType"
	// keyMayFormat says whether a file system may be made on the volume, should it be empty. In the volume context it
	// tells what was known when the volume was made: that it began empty, or as a copy. In the publish context it tells
	// what the target knew when the volume was published. Nodes format only what both allow.
	keyMayFormat = "mayFormat"
)

// exportContext describes how nodes reach a volume, in spdk-csi's words.
func exportContext(c TargetConfig, v volume.Volume) map[string]string {
	m := map[string]string{
		connect.KeyTargetAddr: c.TargetAddr,
		connect.KeyTargetPort: c.TargetPort,
		connect.KeyNSUUID:     v.UUID,
		connect.KeyLvolSize:   strconv.FormatInt(v.SizeBytes, 10),
	}
	switch c.TargetType {
	case targetISCSI:
		m[connect.KeyTargetType] = targetISCSI
		m[connect.KeyIQN] = volume.IQN(v.UUID)
		return m
	case targetLoop:
		m[connect.KeyTargetType] = targetLoop
		m[connect.KeyLoopDir] = c.LoopDir
	default:
		m[connect.KeyTargetType] = string(c.transport())
	}
	m[connect.KeyNQN] = volume.NQN(v.UUID)
	m[connect.KeyModel] = v.UUID
	return m
}

// volumeContext is what a new volume's PV remembers.
func volumeContext(c TargetConfig, v volume.Volume, fsType string, from volume.Origin) map[string]string {
	m := exportContext(c, v)
	m[keyStore] = v.Store
	m[keyMayFormat] = strconv.FormatBool(from.UUID == "")
	if fsType != "" {
		m[keyFSType] = fsType
	}
	return m
}

// publishContext is what the node is told: where the volume is now, and whether it may be formatted.
func publishContext(c TargetConfig, v volume.Volume, mayFormat bool) map[string]string {
	m := exportContext(c, v)
	m[keyMayFormat] = strconv.FormatBool(mayFormat)
	if v.Multipath {
		m[connect.KeyMultipath] = "true"
	}
	return m
}

// mayFormat decides by the clusters that the volume has: where none was ever written, nothing can be lost. Where the target
// does not know, what the PV remembers decides; those of spdk-csi, which remember nothing, were all to be formatted when
// they were empty. (The node looks at the device, in any case.)
func mayFormat(pristine, known bool, remembered map[string]string) bool {
	return remembered[keyMayFormat] != "false" && (pristine || !known)
}

// An attachment is what a node needs to know of a volume.
type attachment struct {
	export    connect.Export
	fsType    string
	mayFormat bool // if it is empty
	mayFinish bool // if an earlier formatting was cut off
}

// readAttachment reads the contexts of a call. The publish context, which is younger, wins.
func readAttachment(remembered, published map[string]string) (attachment, error) {
	m := maps.Clone(remembered)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, published)
	a := attachment{fsType: remembered[keyFSType], mayFinish: remembered[keyMayFormat] == "true"}
	var err error
	if a.export, err = connect.ParseExport(m); err != nil {
		return a, fmt.Errorf("%w: is the volume published by this driver's controller, and attachRequired true in its CSIDriver?", err)
	}
	// What was made from a copy stays one; of a volume that no controller published, only its PV can tell.
	a.mayFormat = m[keyMayFormat] == "true" && remembered[keyMayFormat] != "false"
	return a, nil
}
