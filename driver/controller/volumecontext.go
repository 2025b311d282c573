package controller

import (
	"strconv"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// exportContext describes how nodes reach a volume, in spdk-csi's words.
func exportContext(c driver.TargetConfig, v volume.Volume) map[string]string {
	m := map[string]string{
		connect.KeyTargetAddr: c.TargetAddr,
		connect.KeyTargetPort: c.TargetPort,
		connect.KeyNSUUID:     v.UUID,
		connect.KeyLvolSize:   strconv.FormatInt(v.SizeBytes, 10),
	}
	switch c.TargetType {
	case driver.TargetISCSI:
		m[connect.KeyTargetType] = driver.TargetISCSI
		m[connect.KeyIQN] = export.IQN(v.UUID)
		return m
	case driver.TargetLoop:
		m[connect.KeyTargetType] = driver.TargetLoop
		m[connect.KeyLoopDir] = c.LoopDir
	default:
		m[connect.KeyTargetType] = string(c.Transport())
	}
	m[connect.KeyNQN] = export.NQN(v.UUID)
	m[connect.KeyModel] = v.UUID
	return m
}

// volumeContext is what a new volume's PV remembers.
func volumeContext(c driver.TargetConfig, v volume.Volume, fsType string, from volume.Origin) map[string]string {
	m := exportContext(c, v)
	m[request.KeyStore] = v.Store
	m[request.KeyMayFormat] = strconv.FormatBool(from.UUID == "")
	if fsType != "" {
		m[request.KeyFSType] = fsType
	}
	return m
}

// publishContext is what the node learns: where the volume is now, and whether it may be formatted.
func publishContext(c driver.TargetConfig, v volume.Exported, mayFormat bool) map[string]string {
	m := exportContext(c, v.Volume)
	m[request.KeyMayFormat] = strconv.FormatBool(mayFormat)
	if v.Multipath {
		m[connect.KeyMultipath] = "true"
	}
	return m
}

// mayFormat decides by the clusters that the volume has: where none was ever written, nothing can be lost. Where the target
// does not know, what the PV remembers decides; those of spdk-csi, which remember nothing, were all to be formatted when
// they were empty. (The node looks at the device, in any case.)
func mayFormat(pristine, known bool, remembered map[string]string) bool {
	return remembered[request.KeyMayFormat] != "false" && (pristine || !known)
}
