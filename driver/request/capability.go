package request

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/mkfs"
)

// accessModes contains the supported access modes. shared reports whether a volume with that mode
// may be on several nodes at a time. Several nodes may write only to a raw block volume, because
// the driver does not coordinate their writes.
var accessModes = map[csi.VolumeCapability_AccessMode_Mode]struct{ shared bool }{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        {},
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: {},
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  {},
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   {},
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    {shared: true},
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   {shared: true},
}

// CheckCapabilities fails for capabilities that this driver does not support: with [ErrInvalid] if
// they are missing or incomplete, and with [ErrUnsupported] otherwise.
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
			if err := mkfs.CheckType(t.Mount.GetFsType()); err != nil {
				return fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
			if _, _, err := mkfs.MountOptions(t.Mount.GetFsType(), t.Mount.GetMountFlags()); err != nil {
				return fmt.Errorf("%w: %w", ErrUnsupported, err)
			}
		default:
			return fmt.Errorf("%w: volume_capability specifies neither block nor mount", ErrInvalid)
		}
		mode := c.GetAccessMode().GetMode()
		if _, ok := accessModes[mode]; !ok {
			return fmt.Errorf("%w: access mode %s: use ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany, or ReadWriteMany with volumeMode Block", ErrUnsupported, mode)
		}
		if mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER && c.GetMount() != nil {
			return fmt.Errorf("%w: access mode %s for a file system: nothing coordinates the writes of several nodes, which would destroy it; use volumeMode Block if the application coordinates them, "+
				"as virtual machines do during a live migration, or ReadWriteOnce with an NFS server on it", ErrUnsupported, mode)
		}
	}
	return nil
}

// ReadOnly reports whether a capability requests read-only access.
func ReadOnly(c *csi.VolumeCapability) bool {
	mode := c.GetAccessMode().GetMode()
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY || mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// Shared reports whether one of the capabilities requests a volume that may be on several nodes at
// a time.
func Shared(capabilities ...*csi.VolumeCapability) bool {
	for _, c := range capabilities {
		if accessModes[c.GetAccessMode().GetMode()].shared {
			return true
		}
	}
	return false
}

// RawBlock reports whether one of the capabilities requests a volume without a file system.
func RawBlock(capabilities ...*csi.VolumeCapability) bool {
	return slices.ContainsFunc(capabilities, func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil })
}
