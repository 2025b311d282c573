package mount

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	utilexec "k8s.io/utils/exec"

	"github.com/spdkgate/spdkgate/driver/mkfs"
)

// runTool runs a tool to completion, even if the caller stops waiting, and returns its output and
// exit code. It fails if the tool cannot be started or is killed.
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
		return "", 0, fmt.Errorf("%w: %s is not installed: install e2fsprogs, xfsprogs, btrfs-progs and util-linux (%w)", ErrUnsupported, name, err)
	}
	return output, 0, fmt.Errorf("run %s: %w: %s", name, err, output)
}

// shorten removes the middle of long tool output.
func shorten(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return s[:most/2] + " … " + s[len(s)-most/2:]
}

// format creates a file system on an empty device.
func (m *Mounter) format(s *Stage, found contents) error {
	device, fsType := s.Device, s.FSType
	args, err := mkfs.New{Type: fsType, Options: s.MkfsOptions, UUID: s.UUID, Again: found.interrupted}.Args()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := markFormatting(device, true); err != nil {
		return fmt.Errorf("before mkfs: %w", err)
	}
	m.log.Info("creating a file system", "device", device, "fstype", fsType, "again", found.interrupted)
	out, code, err := m.runTool("mkfs."+fsType, append(args, device)...)
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

// fsck runs e2fsck on an ext4 file system. e2fsck replays the journal and makes safe repairs. With
// the option -f, it also checks a file system that looks clean.
func (m *Mounter) fsck(device string, options ...string) error {
	// Bits of the exit code of e2fsck(8).
	const repaired, needsReboot, unrepaired = 1, 2, 4
	out, code, err := m.runTool("e2fsck", slices.Concat([]string{"-p"}, options, []string{device})...)
	switch {
	case err != nil:
		return err
	case code&^(repaired|needsReboot) == 0:
		if code != 0 {
			m.log.Warn("e2fsck repaired the file system", "device", device, "output", out)
		}
		return nil
	case code&unrepaired != 0:
		return fmt.Errorf("%w: e2fsck found errors on %s that it does not repair automatically: restore a snapshot, or run e2fsck by hand: %s", ErrDamaged, device, out)
	}
	return fmt.Errorf("e2fsck %s: exit code %d: %s", device, code, out)
}
