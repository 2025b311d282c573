package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// nodePlugin is the scenario for spdk-csi --node. It makes CSI calls over the plugin's socket, like
// kubelet. Each case is a line in the table that the host prints at the end.
func (s *scenario) nodePlugin() error { return s.withPlugin(s.pluginCases) }

// killedPlugin is the scenario where the plugin is killed.
func (s *scenario) killedPlugin() error { return s.withPlugin(s.killed) }

func (s *scenario) withPlugin(do func(*plugin)) (err error) {
	defer s.end(&err)
	if err := modprobe("ext4", "xfs", "btrfs", "nvme-tcp"); err != nil {
		return err
	}
	p, err := newPlugin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Println("guest: the node plugin's log ends with:", p.lastLog())
		}
	}()
	host, _ := s.target.(hostTarget)
	if _, ok := s.target.(*scsiTarget); ok || host.iscsi {
		s.step("start iscsid", func(context.Context) (string, error) { return "", startISCSID() })
	}
	if t, ok := s.target.(*nvmeTarget); ok && t.transport == "rdma" {
		s.step("add an RDMA device", func(context.Context) (string, error) { return "", addRDMADevice() })
	}
	do(p)
	s.step("nothing is left in sysfs", func(context.Context) (string, error) { return "", errors.Join(noControllers(), noSessions()) })
	return nil
}

func (s *scenario) pluginCases(p *plugin) {
	s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
	switch t := s.target.(type) {
	case *nvmeTarget:
		s.lives(p)
		if t.transport == "rdma" {
			break // the rest does not depend on the transport
		}
		s.refused(p)
		s.inCase("a damaged ext4 is repaired", func() { s.repaired(p) })
		s.inCase("two paths are cut under I/O", func() { s.cutPaths(p, "127.0.0.1") })
		s.inCase("device removed below a pod", func() { s.lostDevice(p) })
		s.inCase("lost paths and devices are reported and restored", func() { s.watched(p) })
		for _, fsType := range []string{"ext4", "xfs"} {
			s.inCase("unstaged while the target is away, "+fsType, func() { s.unstagedWithoutTarget(p, fsType) })
		}
		if s.all {
			s.inCase("50 volumes in parallel", func() { s.parallel(p) })
		}
	case *scsiTarget:
		s.lives(p)
	case hostTarget:
		s.lives(p)
		if t.iscsi {
			break // snapshots of volumes in use and multiple paths are not supported
		}
		for _, fsType := range []string{"ext4", "xfs"} {
			s.inCase("snapshot, restore and clone, "+fsType, func() { s.copied(p, t, fsType) })
		}
		s.inCase("two paths are cut under I/O", func() { s.cutPaths(p, control.Address) })
		if s.all {
			s.inCase("50 volumes in parallel", func() { s.parallel(p) })
		}
	}
	s.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
}

// lives runs through a volume's life with each file system, and as a raw block volume.
func (s *scenario) lives(p *plugin) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		s.inCase("life of a volume, "+fsType, func() { s.life(p, fsType) })
	}
	s.inCase("life of a raw block volume", func() { s.blockLife(p) })
}

// smallest returns the smallest volume size for a file system.
func smallest(fsType string) int64 {
	switch fsType {
	case "xfs":
		return 320 * mib
	case "btrfs":
		return 128 * mib
	}
	return 32 * mib
}

// life uses a volume in two pods, one after the other, and expands it while it is in use.
func (s *scenario) life(p *plugin, fsType string) {
	size := smallest(fsType)
	v := s.newCSIVolume(p, "life-"+fsType, size, fsType)
	v.step("stage", v.stage)
	v.step("stage, again", v.stage)
	v.step("publish", v.publish)
	v.step("publish, again", v.publish)
	v.step("statistics", v.stats(size/2))
	v.step("write", v.write)
	v.step("read", v.read)
	v.step("expand online", v.expand(2*size))
	v.step("expand online, again", v.expand(2*size))
	v.step("statistics", v.stats(size+size/2))
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unpublish, again", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("unstage, again", v.unstage)
	v.step("nothing is left", v.gone)
	v.step("second pod: stage", v.stage)
	v.step("second pod: publish", v.publish)
	v.step("second pod: read", v.read)
	v.step("second pod: unpublish", v.unpublish)
	v.step("second pod: unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}

func (s *scenario) blockLife(p *plugin) {
	const size = 32 * mib
	v := s.newCSIVolume(p, "life-block", size, "")
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("publish, again", v.publish)
	v.step("statistics", v.stats(size))
	v.step("write", v.write)
	v.step("read", v.read)
	v.step("expand online", v.expand(2*size))
	v.step("statistics", v.stats(2*size))
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}
