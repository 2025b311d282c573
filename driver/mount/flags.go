package mount

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/mkfs"
)

// The supported file systems.
const (
	ext4  = mkfs.Ext4
	xfs   = mkfs.XFS
	btrfs = mkfs.Btrfs
)

func supported(fsType string) bool { return slices.Contains(mkfs.Types, fsType) }

// checked returns the stage with its path and flags in canonical form.
func (s Stage) checked() (Stage, error) {
	if err := mkfs.Check(s.FSType, s.MkfsOptions); err != nil {
		return s, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if s.UUID != "" && uuid.Validate(s.UUID) != nil {
		return s, fmt.Errorf("%w: %q is not the UUID of a file system", ErrInvalid, s.UUID)
	}
	path, err := canonical(s.Path)
	if err != nil {
		return s, err
	}
	flags, readOnly, err := checkFlags(s.FSType, s.Flags)
	if err != nil {
		return s, err
	}
	s.Path, s.Flags, s.ReadOnly = path, flags, s.ReadOnly || readOnly
	return s, nil
}

// checkFlags splits and checks mount options. It removes ro and rw, and reports whether ro was
// present.
func checkFlags(fsType string, flags []string) (kept []string, readOnly bool, err error) {
	if kept, readOnly, err = mkfs.MountOptions(fsType, flags); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return kept, readOnly, nil
}

// perMountFlags returns the flags that apply to a single bind mount, without ro.
func perMountFlags(flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(f string) bool {
		return !slices.Contains([]string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime"}, f)
	})
}
