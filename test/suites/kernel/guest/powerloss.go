package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
)

// powerLoss is the scenario for a machine that loses power during writes to its volumes, and boots
// again. The machine's disk contains a node's persistent files and the files of the guest's own
// target. Data that has not yet been synced to these files is in the page cache, and is therefore
// lost as well.
func (s *scenario) powerLoss(params map[string]string) (err error) {
	defer s.end(&err)
	if err := errors.Join(modprobe("virtio_blk", "loop", "ext4", "xfs", "nvme-tcp"), mountDisk()); err != nil {
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
	phase := params[control.ParamPhase]
	s.inCase("power loss: "+phase, func() {
		s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
		var volumes []*logVolume
		for i, fsType := range control.PowerLossVolumes {
			v := &logVolume{seed: uint64(i + 1)}
			name := "power-" + fsType
			v.csiVolume = &csiVolume{scenario: s, plugin: p, pod: podOf(name), name: name, id: "t0:" + name, fsType: fsType}
			v.step("target: export "+name, v.exportFile)
			volumes = append(volumes, v)
		}
		switch phase {
		case control.PhaseWrite:
			s.writeUntilPowerLoss(volumes)
		case control.PhaseCheck:
			for _, v := range volumes {
				v.acked, _ = strconv.ParseInt(params[control.ParamAcked+"."+v.fsType], 10, 64)
				v.checkAfterPowerLoss()
			}
			s.writeUntilPowerLoss(volumes)
		case control.PhaseUnstage:
			for _, v := range volumes {
				v.step("unpublish "+v.fsType, v.unpublish)
				v.step("unstage "+v.fsType, v.unstage)
				v.step("nothing is left", v.gone)
			}
		}
	})
	return nil
}

// mountDisk mounts the machine's disk, with a new file system at the first boot.
func mountDisk() error {
	const disk = "/dev/vda"
	if _, err := run("blkid", "-p", disk); err != nil {
		if _, err := run("mke2fs", "-q", "-t", "ext4", disk); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll("/var/lib", 0o755), unix.Mount(disk, "/var/lib", "ext4", 0, ""), os.MkdirAll("/var/lib/target", 0o755))
}

// A logVolume is a volume with a file. Blocks are appended to the file, each with a sync.
type logVolume struct {
	*csiVolume
	seed  uint64
	acked int64 // number of blocks
}

func (v *logVolume) exportFile(context.Context) (_ string, err error) {
	own, ok := v.target.(*nvmeTarget)
	if !ok {
		return "", errors.New("needs the guest's own target")
	}
	file := filepath.Join("/var/lib/target", v.name)
	if _, err := os.Stat(file); err != nil {
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, smallest(v.fsType))); err != nil {
			return "", err
		}
	}
	// With nvmet's own buffered I/O, reads of files that are partly in the page cache fail. With a
	// loop device, such reads succeed.
	device, err := run("losetup", "--find", "--show", file)
	if err != nil {
		return "", err
	}
	v.context, err = own.export(v.name, device, uuid.NewSHA1(uuid.NameSpaceURL, []byte(v.name)).String(), smallest(v.fsType), connect.HostOf(nodeID))
	if err == nil {
		v.context[request.KeyMayFormat] = "true"
	}
	return "", err
}

// writeUntilPowerLoss appends blocks to all volumes, and reports to the host which ones have been
// synced.
func (s *scenario) writeUntilPowerLoss(volumes []*logVolume) {
	for _, v := range volumes {
		v.step("stage "+v.fsType, v.stage)
		v.step("publish "+v.fsType, v.publish)
	}
	g, ctx := errgroup.WithContext(s.ctx)
	for _, v := range volumes {
		g.Go(func() error { return v.append(ctx) })
	}
	err := g.Wait() // the power is lost before this returns
	s.step("write", func(context.Context) (string, error) { return "", err })
}

func (v *logVolume) append(ctx context.Context) error {
	f, err := os.OpenFile(v.file(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, blocks.Size)
	const most = 4000
	for n := v.acked; n < most; n++ {
		blocks.Stream{Seed: v.seed, Blocks: 1}.Fill(uint64(n+1), b)
		if _, err := f.WriteAt(b, n*blocks.Size); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		// The file unsynced may or may not exist after the power loss.
		_ = os.WriteFile(filepath.Join(v.published, "unsynced"), b, 0o600)
		report := []control.Progress{{Volume: v.fsType, Acked: uint64(n + 1)}}
		if err := v.host.post(ctx, control.PathProgress, report, nil); err != nil {
			return err
		}
	}
	return errors.New("the power was not lost in time")
}

// checkAfterPowerLoss stages the volume again and compares the synced blocks.
func (v *logVolume) checkAfterPowerLoss() {
	v.step("the file system of "+v.name+" was not unmounted", func(context.Context) (string, error) { return "", v.isDirty() })
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("all synced blocks are there", func(context.Context) (string, error) {
		f, err := os.Open(v.file())
		if err != nil {
			return "", err
		}
		defer f.Close()
		have, want := make([]byte, blocks.Size), make([]byte, blocks.Size)
		for n := range v.acked {
			blocks.Stream{Seed: v.seed, Blocks: 1}.Fill(uint64(n+1), want)
			if _, err := f.ReadAt(have, n*blocks.Size); err != nil || !bytes.Equal(have, want) {
				return "", fmt.Errorf("block %d of %d was lost: %w", n+1, v.acked, err)
			}
		}
		v.figures = strings.TrimPrefix(fmt.Sprintf("%s; %d blocks on %s", v.found, v.acked, v.fsType), "; ")
		v.found = v.figures
		return fmt.Sprintf("%d blocks", v.acked), nil
	})
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
}

// isDirty checks that the journal has to be replayed, so that the test covers this case.
func (v *logVolume) isDirty() error {
	if v.fsType != "ext4" {
		return nil // xfs has no such flag
	}
	const incompatible, needsRecovery = superblock + 0x60, 4
	f, err := os.Open(filepath.Join("/var/lib/target", v.name))
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, incompatible); err != nil || b[0]&needsRecovery == 0 {
		return fmt.Errorf("features %#x, want the flag needs_recovery: %w", b[0], err)
	}
	return nil
}
