package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// FormatAndMount mounts a device at its staging path. Before mounting, it creates a file system on
// an empty device, if permitted, and checks an existing ext4 file system. After mounting, it grows
// the file system to the size of the device, if possible. FormatAndMount succeeds if the device is
// already mounted there, and replaces a broken mount.
func (m *Mounter) FormatAndMount(ctx context.Context, s Stage) error {
	s, err := s.checked()
	if err != nil {
		return fmt.Errorf("stage %s: %w", s.Device, err)
	}
	number, err := blockRdev(s.Device)
	if err != nil {
		return fmt.Errorf("stage %s: %w", s.Device, err)
	}
	_, err = operation.Run(ctx, &m.operations, []string{"device " + number, s.Path}, func(ctx context.Context, step *operation.Step) (struct{}, error) {
		return struct{}{}, m.stage(ctx, s, number, step)
	})
	if err != nil {
		return fmt.Errorf("stage %s at %s: %w", s.Device, s.Path, err)
	}
	return nil
}

func (m *Mounter) stage(ctx context.Context, s Stage, number string, step *operation.Step) error {
	step.Doing("reading the mount at %s", s.Path)
	mounted, err := m.isStaged(s, number)
	if err != nil {
		return err
	}
	if !mounted {
		if err := m.notMountedElsewhere(number); err != nil {
			return err
		}
		if err := m.prepareDevice(ctx, &s, step); err != nil {
			return err
		}
		if s.Ready != nil {
			if err := s.Ready(ctx); err != nil {
				return err
			}
		}
		if err := m.mountDevice(ctx, s, number, step); err != nil {
			return err
		}
	}
	if s.ReadOnly {
		return nil
	}
	_, err = m.growMounted(ctx, s.Path, step)
	if errors.Is(err, errNotGrown) {
		// Returning an error here would make a working file system permanently unavailable to pods.
		m.log.Warn("file system mounted, but not grown to the size of its device", "device", s.Device, "path", s.Path, "error", err)
		return nil
	}
	return err
}

// isStaged reports whether the device is mounted at the staging path as requested. It removes a
// broken mount, and fails if anything else is mounted there.
func (m *Mounter) isStaged(s Stage, number string) (bool, error) {
	p, err := m.at(s.Path)
	if errors.Is(err, ErrNotMounted) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if why := p.checkUsable(); why != nil {
		return false, m.replace(p, why)
	}
	switch {
	case p.number != number || p.root != "/":
		return false, fmt.Errorf("%w: %s is mounted at this path, with type %s: unmount it first", ErrConflict, orUnknown(p.Device), p.FSType)
	case s.FSType != "" && p.FSType != s.FSType:
		return false, fmt.Errorf("%w: the device is mounted at this path as %s, but %s is requested", ErrConflict, p.FSType, s.FSType)
	}
	return true, p.conflict(s.ReadOnly, s.Flags)
}

// conflict fails with ErrConflict if mountinfo shows that a mount differs from the request.
func (p Point) conflict(readOnly bool, flags []string) error {
	if p.ReadOnly != readOnly {
		have, want := "read-write", "read-only"
		if p.ReadOnly {
			have, want = want, have
		}
		return fmt.Errorf("%w: %s is mounted %s, but %s is requested: unmount it first", ErrConflict, p.Path, have, want)
	}
	for _, f := range perMountFlags(flags) {
		if !slices.Contains(p.options, f) {
			return fmt.Errorf("%w: %s is mounted without %s: unmount it first", ErrConflict, p.Path, f)
		}
	}
	return nil
}

func (m *Mounter) notMountedElsewhere(number string) error {
	all, err := m.points()
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.number == number {
			return fmt.Errorf("%w: the device is mounted at %s: unmount it there first", ErrConflict, p.Path)
		}
	}
	return nil
}

// prepareDevice checks the file system on the device, or creates a file system if permitted. It
// sets s.FSType to the file system's type.
func (m *Mounter) prepareDevice(ctx context.Context, s *Stage, step *operation.Step) error {
	step.Doing("reading %s", s.Device)
	found, err := m.examine(ctx, s)
	if err != nil {
		return err
	}
	format, err := decide(found, s)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if format {
		step.Doing("mkfs.%s %s", s.FSType, s.Device)
		return m.format(s, found)
	}
	if s.FSType == ext4 && !s.ReadOnly {
		step.Doing("e2fsck %s", s.Device)
		if err := m.fsck(s.Device); err != nil {
			return err
		}
		m.growUnmounted(s.Device, step)
	}
	return m.ensureUUID(ctx, s, step)
}

// decide reports whether to format the device, and sets s.FSType to the file system's type. It
// fails if the device must not be mounted.
func decide(found contents, s *Stage) (format bool, err error) {
	const howto = "if you do not need the data, wipe it by hand (wipefs --all), or delete the volume"
	switch {
	case found.filesystem != "":
		if s.FSType != "" && s.FSType != found.filesystem {
			return false, fmt.Errorf("%w: %s, but %s is requested: request %s, or use another volume", ErrWrongFilesystem, found.filesystem, s.FSType, found.filesystem)
		}
		s.FSType = found.filesystem
		return false, nil
	case found.other == "crypto_LUKS":
		return false, fmt.Errorf("%w: it is encrypted (LUKS), but the volume's class does not request encryption: the device is neither formatted nor mounted; "+
			"use a StorageClass with the class parameter encryption: luks2, also for a copy of an encrypted volume", ErrHoldsData)
	case found.other != "":
		return false, fmt.Errorf("%w: %s: the device is neither formatted nor mounted; %s", ErrHoldsData, found.other, howto)
	case !s.MayFormat && !(s.MayFinish && found.interrupted):
		return false, fmt.Errorf("%w: it should have a file system, because it is a copy of a volume or was used before, so it is not formatted: check whether the target has lost its data, or the source was empty. The driver's manual says what to do about a volume that is not formatted", ErrEmptyDevice)
	case s.ReadOnly:
		return false, fmt.Errorf("%w: it is mounted read-only, so it is not formatted: mount it read-write once", ErrEmptyDevice)
	}
	if s.FSType == "" {
		s.FSType = ext4
	}
	return true, nil
}

func (m *Mounter) mountDevice(ctx context.Context, s Stage, number string, step *operation.Step) error {
	if err := os.MkdirAll(s.Path, 0o750); err != nil {
		return fmt.Errorf("create the staging path: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	step.Doing("mount %s", s.Device)
	if err := m.mountProtected(s); err != nil {
		return err
	}
	// Check the result, because mount(8) mounts a write-protected device read-only and reports
	// success.
	p, err := m.at(s.Path)
	if err == nil && (p.number != number || p.ReadOnly != s.ReadOnly) {
		err = fmt.Errorf("%w: mounted %s, but with the options %s: check whether the device is write-protected", ErrConflict, orUnknown(p.Device), strings.Join(p.options, ","))
	}
	if err != nil {
		return errors.Join(err, m.unmountAll(s.Path))
	}
	return nil
}

// mountProtected mounts the device. If other nodes may also mount the device, it write-protects the
// device during the mount. Even a read-only mount replays the journal, and nodes that replay the
// journal at the same time would destroy the file system.
func (m *Mounter) mountProtected(s Stage) error {
	mount := func() error { return m.mount.Mount(s.Device, s.Path, s.FSType, s.mountOptions()) }
	if !s.ReadOnly || !s.Shared {
		return mount()
	}
	if err := setReadOnly(s.Device, true); err != nil {
		return err
	}
	err := mount()
	if err != nil {
		err = fmt.Errorf("%w: the volume may be mounted on several nodes, so nothing is written to it. If its journal has to be replayed, as after a snapshot of a volume in use, mount the volume, or a clone of it, "+
			"with ReadWriteOnce once; or read it as it is with the mount option %s", err, map[string]string{ext4: "noload", xfs: "norecovery", btrfs: "rescue=nologreplay"}[s.FSType])
	}
	// Remove the write protection from the device, because a loop device may later be reused for
	// another volume. The mount itself remains read-only.
	return errors.Join(err, setReadOnly(s.Device, false))
}

// mountOptions returns the requested flags and the flags that this package adds.
func (s Stage) mountOptions() []string {
	options := slices.Clone(s.Flags)
	switch {
	case s.FSType == xfs && !slices.Contains(options, "nouuid"):
		// By default, xfs refuses to mount two file systems with the same UUID, such as a volume
		// and its clone.
		options = append(options, "nouuid")
	case s.FSType == ext4 && !slices.ContainsFunc(options, func(f string) bool { return strings.HasPrefix(f, "init_itable") }):
		// By default, the kernel zeroes all inode tables, which allocates 1.6% of a thin volume.
		options = append(options, "noinit_itable")
	case s.FSType == btrfs && !slices.ContainsFunc(options, func(f string) bool { return strings.HasPrefix(f, "discard") || f == "nodiscard" }):
		// Newer kernels discard by default.
		options = append(options, "nodiscard")
	}
	if s.ReadOnly {
		options = append(options, "ro")
	}
	return options
}

func orUnknown(device string) string {
	if device == "" {
		return "a removed device"
	}
	return device
}
