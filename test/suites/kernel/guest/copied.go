package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// copiedElsewhere is the scenario where spdk-csi move copies a volume to another lvstore.
func (s *scenario) copiedElsewhere() error {
	return s.withPlugin(func(p *plugin) {
		s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
		for _, name := range []string{"ext4", "raw", control.Thick} {
			fsType := ""
			if name == "ext4" {
				fsType = name
			}
			s.inCase("copied by spdk-csi move, "+name, func() { s.copyElsewhere(p, "copied-"+name, fsType) })
		}
		s.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
	})
}

func (s *scenario) copyElsewhere(p *plugin, name, fsType string) {
	h := s.target.(hostTarget)
	v := s.newCSIVolume(p, name, 32*mib, fsType)
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("snapshot", func(ctx context.Context) (string, error) { return "", h.snapshot(ctx, "snap-"+name, name) })
	v.step("overwrite", v.write)
	if fsType == "" {
		v.step("write and zero", v.writeAndZero)
	}
	var store string
	s.step("configuration", func(ctx context.Context) (string, error) {
		c, err := h.call(ctx, control.TargetCall{Do: control.Configuration})
		if err != nil {
			return "", err
		}
		store = c["lvstore"]
		return store, errors.Join(os.WriteFile("/tmp/config.json", []byte(c["config.json"]), 0o600), os.WriteFile("/tmp/secret.json", []byte(c["secret.json"]), 0o600))
	})
	id, first := "t0:"+v.context[connect.KeyNSUUID], ""
	s.step("spdk-csi move --prepare", func(ctx context.Context) (string, error) {
		_, notes, err := move(ctx, "--volume="+id, "--parameter=lvstore="+store, "--prepare")
		first = moveFigures.FindString(notes)
		return notes, err
	})
	v.step("read while prepared", v.read)
	if fsType != "" {
		v.step("overwrite after the snapshot", v.write)
	} else {
		v.step("write after the snapshot", v.writeLater)
	}
	use := func(v *csiVolume) {
		v.step("unpublish", v.unpublish)
		v.step("unstage", v.unstage)
		v.step("nothing is left", v.gone)
	}
	use(v)
	s.step("withdraw", func(ctx context.Context) (string, error) {
		c, err := h.call(ctx, control.TargetCall{Do: control.Withdraw, Volume: name})
		v.id = c[control.VolumeID]
		return v.id, err
	})
	var copied string
	s.step("spdk-csi move", func(ctx context.Context) (string, error) {
		out, notes, err := move(ctx, "--volume="+v.id, "--parameter=lvstore="+store)
		s.figures = "prepared: " + first + "; moved: " + moveFigures.FindString(notes)
		copied = regexp.MustCompile(`t0:[0-9a-f-]{36}`).FindString(out)
		if err == nil && (copied == "" || copied == v.id) {
			err = fmt.Errorf("the output names no copy: %s", out)
		}
		return copied + ": " + notes, err
	})
	s.step("all bytes are equal", func(ctx context.Context) (string, error) {
		_, notes, err := move(ctx, "--volume="+v.id, "--parameter=lvstore="+store, "--verify-all")
		return notes, err
	})
	s.step("no node gets the original", func(ctx context.Context) (string, error) {
		_, err := h.call(ctx, control.TargetCall{Do: control.Publish, Volume: name, Node: nodeID})
		if err == nil {
			return "", errors.New("it was published")
		}
		return err.Error(), nil
	})
	c := &csiVolume{scenario: s, plugin: p, pod: podOf(name + "-copy"), name: name + "-copy", id: copied, fsType: fsType, sum: v.sum}
	c.step("publish the copy", func(ctx context.Context) (_ string, err error) {
		c.context, err = h.call(ctx, control.TargetCall{Do: control.Publish, Volume: c.name, Node: nodeID, Parameters: map[string]string{control.VolumeID: copied}})
		return "", err
	})
	c.step("stage", c.stage)
	c.step("publish", c.publish)
	c.step("has the data", c.read)
	c.step("write", c.write)
	c.step("read", c.read)
	use(c)
	s.step("delete the original", func(ctx context.Context) (string, error) {
		out, _, err := move(ctx, "--volume="+v.id, "--delete-original", "--copy="+copied)
		if err == nil {
			_, err = h.call(ctx, control.TargetCall{Do: control.Forget, Volume: name})
		}
		return out, err
	})
	c.delete()
	s.step("delete the snapshot", func(ctx context.Context) (string, error) { return "", h.removeSnapshot(ctx, "snap-"+name) })
}

// writeAndZero writes to one part of a raw block volume, and to another part, which it then
// overwrites with zeros.
func (v *csiVolume) writeAndZero(context.Context) (string, error) {
	f, err := os.OpenFile(v.file(), os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	data := make([]byte, mib)
	rand.Read(data)
	for _, at := range []int64{20*mib + 4096, 24 * mib} {
		if _, err = f.WriteAt(data, at); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	clear(data)
	_, zeroed := f.WriteAt(data, 24*mib)
	return "", errors.Join(err, zeroed, f.Sync(), f.Close())
}

// writeLater overwrites 8 KiB of a raw block volume.
func (v *csiVolume) writeLater(context.Context) (string, error) {
	f, err := os.OpenFile(v.file(), os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	data := make([]byte, 8<<10)
	rand.Read(data)
	_, err = f.WriteAt(data, 28*mib)
	return "", errors.Join(err, f.Sync(), f.Close())
}

var moveFigures = regexp.MustCompile(`[0-9.]+ MiB, .*written`)

// move runs spdk-csi move, and returns its output and its log.
func move(ctx context.Context, args ...string) (out, log string, err error) {
	cmd := exec.CommandContext(ctx, control.Plugin, append([]string{"move"}, args...)...)
	cmd.Env = append(os.Environ(), "SPDKCSI_CONFIG=/tmp/config.json", "SPDKCSI_SECRET=/tmp/secret.json")
	var notes bytes.Buffer
	cmd.Stderr = &notes
	text, err := cmd.Output()
	log = string(bytes.TrimSpace(notes.Bytes()))
	if err != nil {
		err = fmt.Errorf("spdk-csi move: %w: %s", err, log)
	}
	return string(bytes.TrimSpace(text)), log, err
}
