package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/monitor"
	"github.com/spdkgate/spdkgate/driver/request"
)

// stagedVolumes records on this node's disk where volumes are staged. For each volume, the
// directory dir contains a symbolic link to the staging directory, named after the volume's id.
// kubelet chooses the staging directories, which contain the records of staged volumes, and passes
// their paths only in its calls. Without these links, a restarted process would not know which
// volumes to monitor. A volume is added once it is completely staged, and removed when its
// unstaging begins. The monitor ignores all other volumes, because kubelet repeats unfinished
// calls.
//
// Each boot of the node has its own directory of links, because after a boot, no volume is
// connected until it is staged again.
type stagedVolumes struct{ dir, boot string }

func (s stagedVolumes) path(volumeID string) string { return filepath.Join(s.dir, s.boot, volumeID) }

func (s stagedVolumes) add(volumeID, staging string) error {
	path := s.path(volumeID)
	if to, err := os.Readlink(path); err == nil && to == staging {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := s.remove(volumeID); err != nil {
		return err
	}
	return os.Symlink(staging, path)
}

func (s stagedVolumes) remove(volumeID string) error {
	if err := os.Remove(s.path(volumeID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// all returns the staging directories by volume id.
func (s stagedVolumes) all() (map[string]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, s.boot))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the volumes that are staged on this node: %w", err)
	}
	found := map[string]string{}
	for _, e := range entries {
		if staging, err := os.Readlink(s.path(e.Name())); err == nil {
			found[e.Name()] = staging
		}
	}
	return found, nil
}

// dropOtherBoots removes everything that was recorded before the current boot.
func (s stagedVolumes) dropOtherBoots() error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != s.boot {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	return err
}

// bootID returns the kernel's identifier of this boot.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown-boot"
	}
	return strings.TrimSpace(string(text))
}

// noteStaged makes the monitor watch a volume and discard the volume's earlier findings. It only
// logs a failure to write the link.
func (n *Node) noteStaged(volumeID, staging string) {
	if err := n.staged.add(volumeID, staging); err != nil {
		n.log.Warn("cannot record that a volume is staged: it is not monitored", "volume", volumeID, "error", err)
	}
	n.monitor.Forget(volumeID)
}

// noteUnstaged ends the monitoring of a volume. Call noteUnstaged before undoing any part of the
// staging.
func (n *Node) noteUnstaged(volumeID string) {
	if err := n.staged.remove(volumeID); err != nil {
		n.log.Warn("cannot record that a volume is being unstaged: it is monitored until its record is removed", "volume", volumeID, "error", err)
	}
	n.monitor.Forget(volumeID)
}

// monitored gives a monitor access to a node's volumes.
type monitored struct{ *Node }

// SetMonitor sets the monitor. The health calls return its findings. Call SetMonitor before the
// node serves requests.
func (n *Node) SetMonitor(m *monitor.Monitor) { n.monitor = m }

// Volumes returns the source of volumes for a monitor.
func (n *Node) Volumes() monitor.Source { return monitored{n} }

// Staged implements [monitor.Source].
func (n monitored) Staged() ([]monitor.Volume, error) {
	all, err := n.staged.all()
	if err != nil {
		return nil, err
	}
	var volumes []monitor.Volume
	for id, staging := range all {
		if v, ok := n.volume(id, staging); ok {
			volumes = append(volumes, v)
		}
	}
	return volumes, nil
}

// volume describes a staged volume for the monitor. It returns false if the volume no longer has a
// record.
func (n monitored) volume(id, staging string) (monitor.Volume, bool) {
	v := monitor.Volume{ID: id, UUID: id}
	if parsed, err := request.ParseVolumeID(id); err == nil {
		v.Target, v.UUID = parsed.Target, parsed.UUID
	}
	record, found, err := readRecord(staging, id)
	if err == nil && (!found || record.replicated()) || errors.Is(err, request.ErrConflict) {
		return v, false // a Healer watches replicated volumes
	}
	v.Err, v.Export, v.Targets = err, record.Export, record.Targets
	if err == nil && !record.Block {
		v.Path = stagePath(staging, id)
	}
	if name, nameErr := luks.NameOf(id); err == nil && nameErr == nil && record.encrypted() && n.encrypter != nil {
		v.OnAnother = func(device string) (bool, error) { return n.encrypter.OpenedFromAnother(name, device) }
	}
	return v, true
}

// Busy implements [monitor.Source].
func (n monitored) Busy(volumeID string) bool {
	return slices.Contains(n.locks.Held(), volumeID)
}

// Hold implements [monitor.Source].
func (n monitored) Hold(volumeID string) (v monitor.Volume, release func(), ok bool) {
	claim := n.locks.Claim()
	if claim.Take(volumeID) != nil {
		return v, nil, false
	}
	if staging, err := os.Readlink(n.staged.path(volumeID)); err == nil {
		if v, ok = n.volume(volumeID, staging); ok && v.Err == nil {
			return v, claim.Release, true
		}
	}
	claim.Release()
	return v, nil, false
}

// Adopt implements [monitor.Source]. It records the volumes with file systems mounted at their
// staging paths, because earlier releases did not record these volumes.
func (n monitored) Adopt(mounts []string) error {
	if err := n.staged.dropOtherBoots(); err != nil {
		return fmt.Errorf("remove the records of earlier boots: %w", err)
	}
	for _, path := range mounts {
		staging, id := filepath.Split(path)
		staging = filepath.Clean(staging)
		if _, err := request.ParseVolumeID(id); err != nil {
			continue // the directory may be on another file system, which may hang
		}
		if _, found, err := readRecord(staging, id); err != nil || !found {
			continue
		}
		if err := n.staged.add(id, staging); err != nil {
			return fmt.Errorf("record that volume %s is staged: %w", id, err)
		}
	}
	return nil
}
