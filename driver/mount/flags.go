package mount

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

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

var (
	flagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_=:./@+-]*$`)
	// kubelet quotes a volume's SELinux label, because its categories are separated by commas.
	labelPattern = regexp.MustCompile(`^(fs|def|root)?context="[A-Za-z0-9_:,.-]+"$`)
)

// checkFlags splits and checks mount options, of which only those of the list for the file system
// are allowed; fsType "" is any file system. It removes ro and rw, and reports whether there was ro.
func checkFlags(fsType string, flags []string) (kept []string, readOnly bool, err error) {
	for _, f := range splitFlags(strings.Join(flags, ",")) {
		f = strings.TrimSpace(f)
		switch {
		case f == "" || f == "rw" || f == "defaults":
		case f == "ro":
			readOnly = true
		case !flagPattern.MatchString(f) && !labelPattern.MatchString(f):
			return nil, false, fmt.Errorf("%w: mount option %q: only letters, digits and _=:./@+- are allowed", ErrInvalid, f)
		case !allowedOption(fsType, f):
			return nil, false, fmt.Errorf("%w: mount option %q is not allowed for volumes with %s: remove it from the storage class", ErrInvalid, f, cmp.Or(fsType, "any file system"))
		case !slices.Contains(kept, f):
			kept = append(kept, f)
		}
	}
	return kept, readOnly, nil
}

// splitFlags splits at commas outside of quotes.
func splitFlags(s string) []string {
	quoted := false
	return strings.FieldsFunc(s, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	})
}

// perMountFlags returns the flags that apply to a single bind mount, without ro.
func perMountFlags(flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(f string) bool {
		return !slices.Contains([]string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime"}, f)
	})
}
