package mount

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	utilexec "k8s.io/utils/exec"
)

// runTool runs a tool to its end, whatever happens to the caller, and returns its output and exit
// code; an error if it could not be run, or was killed.
func (m *Mounter) runTool(name string, args ...string) (output string, code int, err error) {
	raw, err := m.exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	output = shorten(strings.TrimSpace(string(raw)))
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return output, 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return output, exit.ExitStatus(), nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, utilexec.ErrExecutableNotFound):
		return "", 0, fmt.Errorf("%w: %s is not installed: install e2fsprogs, xfsprogs and util-linux (%w)", ErrUnsupported, name, err)
	}
	return output, 0, fmt.Errorf("run %s: %w: %s", name, err, output)
}

// shorten keeps the beginning and the end of a tool's output.
func shorten(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return s[:most/2] + " … " + s[len(s)-most/2:]
}

// mkfsArgs are mkfs options suited to thin volumes that grow.
//   - No discard: what is empty need not be emptied, and for a large thin volume that takes minutes.
//   - ext4 blocks of 4 KiB whatever the size: mkfs would choose 1 KiB for a small volume, which then
//     stays with them when it grows.
//   - ext4 inode tables and journal are not zeroed: SPDK gives a cluster to each zero written. Tables
//     are marked as unused, blocks of the journal count by their checksums.
//   - No ext4 blocks are kept for root.
func mkfsArgs(fsType string, again bool) []string {
	if fsType == xfs {
		if again {
			return []string{"-q", "-K", "-f"}
		}
		return []string{"-q", "-K"}
	}
	return []string{"-q", "-b", "4096", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"}
}

// format makes a file system on a device that was found empty.
func (m *Mounter) format(device, fsType string, found contents) error {
	if err := markFormatting(device, true); err != nil {
		return fmt.Errorf("before mkfs: %w", err)
	}
	m.log.Info("making a file system", "device", device, "fstype", fsType, "again", found.interrupted)
	out, code, err := m.runTool("mkfs."+fsType, append(mkfsArgs(fsType, found.interrupted), device)...)
	if err == nil && code != 0 {
		err = fmt.Errorf("mkfs.%s %s: exit code %d: %s", fsType, device, code, out)
	}
	if err != nil {
		return err
	}
	if err := markFormatting(device, false); err != nil {
		return fmt.Errorf("after mkfs: %w", err)
	}
	return nil
}

// fsck runs e2fsck on an ext4: it replays the journal and repairs what is safe to repair.
func (m *Mounter) fsck(device string) error {
	// Exit codes of e2fsck(8); those that repaired something may come together.
	const repaired, needsReboot, unrepaired = 1, 2, 4
	out, code, err := m.runTool("e2fsck", "-p", device)
	switch {
	case err != nil:
		return err
	case code&^(repaired|needsReboot) == 0:
		if code != 0 {
			m.log.Warn("e2fsck repaired the file system", "device", device, "output", out)
		}
		return nil
	case code&unrepaired != 0:
		return fmt.Errorf("%w: e2fsck found errors on %s that it does not repair by itself: restore a snapshot, or run e2fsck by hand: %s", ErrDamaged, device, out)
	}
	return fmt.Errorf("e2fsck %s: exit code %d: %s", device, code, out)
}
