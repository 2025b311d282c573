package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// ensureUUID sets the UUID of an unmounted xfs or btrfs file system to the requested UUID, because
// the file system on a copied volume still has the UUID of its source. An ext4 file system keeps
// its UUID, because the kernel can mount several ext4 file systems with the same UUID.
func (m *Mounter) ensureUUID(ctx context.Context, s *Stage, step *operation.Step) error {
	if s.UUID == "" || s.ReadOnly || s.FSType == ext4 {
		return nil
	}
	step.Doing("reading the UUID of %s", s.Device)
	if same, err := m.hasUUID(s); err != nil || same {
		return err
	}
	step.Doing("changing the UUID of %s", s.Device)
	out, err := m.changeUUID(s)
	if err != nil {
		return err
	}
	same, err := m.hasUUID(s)
	if err == nil && !same && s.FSType == xfs {
		// The UUID cannot be changed until the log has been replayed, for example on a copy of a
		// volume that was in use.
		if err := ctx.Err(); err != nil {
			return err
		}
		step.Doing("replaying the log of %s", s.Device)
		if err := m.replayLog(s); err != nil {
			return err
		}
		if out, err = m.changeUUID(s); err != nil {
			return err
		}
		same, err = m.hasUUID(s)
	}
	if err == nil && !same {
		err = fmt.Errorf("%w: the UUID of the %s file system on %s cannot be changed: mount it without the class parameter filesystemUUID, or repair it: %s", ErrDamaged, s.FSType, s.Device, out)
	}
	if err == nil {
		m.log.Info("UUID of a file system changed", "device", s.Device, "fstype", s.FSType, "uuid", s.UUID)
	}
	return err
}

// hasUUID reports whether the file system has the requested UUID.
func (m *Mounter) hasUUID(s *Stage) (bool, error) {
	out, code, err := m.runTool("blkid", "-p", "-o", "value", "-s", "UUID", s.Device)
	if err == nil && code != 0 {
		err = fmt.Errorf("%w: blkid %s: exit code %d: %s", ErrUnreadable, s.Device, code, out)
	}
	return strings.EqualFold(strings.TrimSpace(out), s.UUID), err
}

// changeUUID runs the tool of the file system. The exit code of this tool does not show whether it
// succeeded.
func (m *Mounter) changeUUID(s *Stage) (out string, err error) {
	if s.FSType == btrfs {
		out, _, err = m.runTool("btrfstune", "-M", s.UUID, s.Device)
	} else {
		out, _, err = m.runTool("xfs_db", "-x", "-p", "xfs_admin", "-c", "uuid "+s.UUID, s.Device)
	}
	return out, err
}

// replayLog mounts and unmounts the file system, so that the kernel replays its log.
func (m *Mounter) replayLog(s *Stage) error {
	if err := os.MkdirAll(s.Path, 0o750); err != nil {
		return fmt.Errorf("create the staging path: %w", err)
	}
	if err := m.mount.Mount(s.Device, s.Path, s.FSType, s.mountOptions()); err != nil {
		return err
	}
	return m.unmountAll(s.Path)
}

// forgetBtrfs makes the kernel forget a device of a btrfs file system that is no longer mounted.
// Otherwise, the kernel would refuse to mount another device with an older state of the same file
// system, such as a restored snapshot. It ignores errors, because the file system may still be
// mounted elsewhere.
func (m *Mounter) forgetBtrfs(p Point) {
	if p.FSType != btrfs || p.Device == "" {
		return
	}
	if err := forgetDevice(p.Device); err != nil && !errors.Is(err, unix.EBUSY) {
		m.log.Debug("the kernel still remembers an unmounted btrfs device", "device", p.Device, "error", err)
	}
}
