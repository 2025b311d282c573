package request

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// accessModes are the supported access modes. A volume is on one node at a time, because nothing coordinates the writes of
// two nodes.
var accessModes = map[csi.VolumeCapability_AccessMode_Mode]bool{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   true,
}

// CheckCapabilities refuses capabilities that no volume of this driver has: missing or incomplete ones with [ErrInvalid],
// others with [ErrUnsupported].
func CheckCapabilities(capabilities ...*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return fmt.Errorf("%w: volume_capabilities is missing", ErrInvalid)
	}
	for _, c := range capabilities {
		if c == nil {
			return fmt.Errorf("%w: volume_capability is missing", ErrInvalid)
		}
		switch t := c.GetAccessType().(type) {
		case *csi.VolumeCapability_Block:
		case *csi.VolumeCapability_Mount:
			if fs := t.Mount.GetFsType(); fs != "" && fs != "ext4" && fs != "xfs" {
				return fmt.Errorf("%w: file system type %q: use ext4 or xfs", ErrUnsupported, fs)
			}
		default:
			return fmt.Errorf("%w: volume_capability says neither block nor mount", ErrInvalid)
		}
		if mode := c.GetAccessMode().GetMode(); !accessModes[mode] {
			return fmt.Errorf("%w: access mode %s: volumes are on one node at a time; use ReadWriteOnce or ReadWriteOncePod", ErrUnsupported, mode)
		}
	}
	return nil
}

// ReadOnly tells whether a capability asks for a volume that is only read.
func ReadOnly(c *csi.VolumeCapability) bool {
	return c.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
}
