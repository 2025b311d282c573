package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/request"
)

// headerBytes is the space that the LUKS2 header occupies on a volume.
const headerBytes = 16 * mib

var passphrases = []string{"the first passphrase of the guest", "the second passphrase of the guest"}

// encrypt gives the volume the parameters of a StorageClass that enables encryption.
func (v *csiVolume) encrypt() {
	v.context[request.KeyEncryption] = request.EncryptionLUKS2
	v.secrets = map[string]string{luks.SecretPassphrase: passphrases[0]}
}

func (s *scenario) newEncryptedVolume(p *plugin, name string, size int64, fsType string) *csiVolume {
	v := s.newCSIVolume(p, name, size, fsType)
	v.encrypt()
	return v
}

func (s *scenario) encrypted(p *plugin) {
	for _, fsType := range []string{"ext4", "xfs", ""} {
		s.inCase("encrypted volume: grown, cloned, "+strings.TrimSpace(fsType+" ")+map[bool]string{true: "raw block"}[fsType == ""], func() { s.encryptedLife(p, fsType) })
	}
	if _, elsewhere := s.target.(hostTarget); elsewhere {
		return // the remaining steps read the volume's file on the target
	}
	s.inCase("encrypted volume: wrong and missing passphrases, other devices", func() { s.encryptedRefusals(p) })
	s.inCase("encrypted volume: passphrase changed", func() { s.encryptedRotation(p) })
	s.inCase("encrypted volume: device removed below a pod", func() { s.encryptedLost(p) })
}

func encryptedSize(fsType string) int64 { return smallest(fsType) + 2*headerBytes }

func (s *scenario) encryptedLife(p *plugin, fsType string) {
	size := encryptedSize(fsType)
	v := s.newEncryptedVolume(p, "encrypted-"+fsType, size, fsType)
	v.step("stage", v.stage)
	v.step("stage, again", v.stage)
	v.step("publish", v.publish)
	v.step("statistics", v.stats((size-headerBytes)/2))
	v.step("write", v.write)
	v.step("read", v.read)
	v.step("expand online", v.expand(2*size))
	v.step("expand online, again", v.expand(2*size))
	v.step("statistics", v.stats(size+size/2-headerBytes))
	v.step("read", v.read)
	v.step("a clone beside its source", func(ctx context.Context) (string, error) { return "", v.cloned(ctx, 2*size) })
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("unstage, again", v.unstage)
	v.step("nothing is left", v.gone)
	if _, elsewhere := s.target.(hostTarget); !elsewhere {
		v.step("the target has no plain text", v.ciphertext)
	}
	v.step("second pod: stage", v.stage)
	v.step("second pod: publish", v.publish)
	v.step("second pod: read", v.read)
	v.step("second pod: unpublish", v.unpublish)
	v.step("second pod: unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}

// marker is part of the plaintext on each volume.
const marker = "plain text that the target must not have"

// cloned clones the volume, and uses the volume and the clone at the same time.
func (v *csiVolume) cloned(ctx context.Context, size int64) error {
	if v.fsType != "" {
		if err := os.WriteFile(filepath.Join(v.published, "marker"), []byte(strings.Repeat(marker, 200)), 0o600); err != nil {
			return err
		}
	}
	unix.Sync()
	name := v.name + "-clone"
	c := &csiVolume{scenario: v.scenario, plugin: v.plugin, pod: podOf(name), name: name, id: "t0:" + name, fsType: v.fsType, sum: v.sum}
	if err := v.copyTo(ctx, c, size); err != nil {
		return err
	}
	for _, call := range (calls{callStage, callPublish, callRead, callWrite, callRead, callUnpublish, callUnstage, callGone}) {
		if _, err := call(c)(ctx); err != nil {
			return err
		}
	}
	return c.target.remove(ctx, c.name)
}

// copyTo creates c as a clone of the volume.
func (v *csiVolume) copyTo(ctx context.Context, c *csiVolume, size int64) (err error) {
	if t, ok := v.target.(hostTarget); ok {
		c.context, err = t.clone(ctx, c.name, v.name, size)
		if err == nil {
			c.encrypt()
		}
		return err
	}
	if err := c.create(ctx, size); err != nil {
		return err
	}
	c.encrypt()
	c.context[request.KeyMayFormat] = "false"
	return copyOver(v.backing(), c.backing())
}

func copyOver(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	destination, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, destination.Close()) }()
	chunk, zeroes := make([]byte, mib), make([]byte, mib)
	for at := int64(0); ; at += mib {
		n, err := source.ReadAt(chunk, at)
		if n > 0 && !bytes.Equal(chunk[:n], zeroes[:n]) { // skip zeroes, because memory is scarce
			if _, err := destination.WriteAt(chunk[:n], at); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ciphertext checks that the volume's file on the target begins with a LUKS header and contains no
// plaintext.
func (v *csiVolume) ciphertext(context.Context) (string, error) {
	f, err := os.Open(v.backing())
	if err != nil {
		return "", err
	}
	defer f.Close()
	// A copy of the marker may be split by a chunk boundary. There are so many copies of the marker
	// that at least one is entirely within a chunk.
	chunk := make([]byte, mib)
	for at := int64(0); ; at += mib {
		n, err := f.ReadAt(chunk, at)
		switch {
		case at == 0 && !bytes.HasPrefix(chunk, []byte("LUKS\xba\xbe\x00\x02")):
			return "", errors.New("there is no LUKS2 header")
		case bytes.Contains(chunk[:n], []byte(marker)):
			return "", errors.New("the target stores plaintext")
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil:
			return "", err
		}
	}
}

// notMapped checks that a volume has no mapping left.
func notMapped(id string) error {
	names, err := filepath.Glob("/sys/block/dm-*/dm/name")
	for _, file := range names {
		if text, readErr := os.ReadFile(file); readErr == nil && strings.TrimSpace(string(text)) == "spdkcsi-"+id {
			err = errors.Join(err, fmt.Errorf("left in sysfs: %s", file))
		}
	}
	if _, statErr := os.Lstat("/dev/mapper/spdkcsi-" + id); statErr == nil {
		err = errors.Join(err, errors.New("left in /dev/mapper"))
	}
	return err
}

// refusedUnchanged checks that staging is refused, that it leaves nothing behind, and that the
// volume's file is unchanged.
func (v *csiVolume) refusedUnchanged(name string, code codes.Code, text string) {
	var before [sha256.Size]byte
	v.step("checksum", func(context.Context) (_ string, err error) {
		before, err = checksum(v.backing())
		return "", err
	})
	for range 2 {
		v.step(name+" is refused", func(ctx context.Context) (string, error) {
			_, err := v.stage(ctx)
			return refusedWith(err, code, text)
		})
	}
	v.step("nothing is left", v.gone)
	v.step("nothing was changed", func(context.Context) (string, error) {
		after, err := checksum(v.backing())
		if err == nil && after != before {
			err = errors.New("the volume's bytes have changed")
		}
		return "", err
	})
}

func (s *scenario) encryptedRefusals(p *plugin) {
	v := s.newEncryptedVolume(p, "refused-encrypted", encryptedSize("ext4"), "ext4")
	v.secrets = nil
	v.refusedUnchanged("a new volume without passphrase", codes.FailedPrecondition, "node-stage-secret-name")
	v.encrypt()
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.secrets = map[string]string{luks.SecretPassphrase: passphrases[1]}
	v.refusedUnchanged("a wrong passphrase", codes.FailedPrecondition, "wrong passphrase")
	v.secrets = nil
	v.refusedUnchanged("no passphrase", codes.FailedPrecondition, "node-stage-secret-name")
	delete(v.context, request.KeyEncryption)
	v.refusedUnchanged("a class without encryption", codes.FailedPrecondition, "encryption: luks2")
	v.encrypt()
	v.step("stage with the right passphrase", v.stage)
	v.step("publish", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.delete()

	e := s.newEncryptedVolume(p, "refused-copy", encryptedSize("ext4"), "ext4")
	e.context[request.KeyMayFormat] = "false"
	e.refusedUnchanged("an empty copy", codes.FailedPrecondition, "device is empty")
	e.context[request.KeyMayFormat] = "true"
	e.step("make a file system on the target", func(context.Context) (string, error) {
		return run("mke2fs", "-q", "-F", "-t", "ext4", e.backing())
	})
	e.refusedUnchanged("a device that is not encrypted", codes.FailedPrecondition, "holds ext4 without encryption")
	e.delete()
}

func (s *scenario) encryptedRotation(p *plugin) {
	v := s.newEncryptedVolume(p, "rotated", encryptedSize("ext4"), "ext4")
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.secrets = map[string]string{luks.SecretPassphrase: passphrases[1], luks.SecretPrevious: passphrases[0]}
	for _, name := range []string{"stage with both passphrases", "stage with both passphrases, again"} {
		v.step(name, v.stage)
		v.step("publish", v.publish)
		v.step("read", v.read)
		v.step("unpublish", v.unpublish)
		v.step("unstage", v.unstage)
	}
	v.secrets = map[string]string{luks.SecretPassphrase: passphrases[0]}
	v.refusedUnchanged("the previous passphrase", codes.FailedPrecondition, "wrong passphrase")
	v.secrets = map[string]string{luks.SecretPassphrase: passphrases[1]}
	v.step("stage with the new passphrase", v.stage)
	v.step("publish", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}

// encryptedLost disconnects a target until the kernel removes the device below an encrypted volume.
// Unlike an unencrypted device, the mapping remains until the pod ends, so a second pod must wait
// for the end of the first one.
func (s *scenario) encryptedLost(p *plugin) {
	v := s.newEncryptedVolume(p, "lost-encrypted", encryptedSize("ext4"), "ext4")
	path := v.relayed(map[string]string{"ctrl_loss_tmo": "5", "reconnect_delay": "1"})
	defer path.Close()
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("the kernel removes the device", func(ctx context.Context) (string, error) {
		path.set(refuses)
		return "", statesBecome(ctx, v.context["nqn"], nil)
	})
	path.set(whole)
	first := v.published
	v.published += "-2"
	v.step("a second pod is refused beside the first", func(ctx context.Context) (string, error) {
		_, err := v.publish(ctx)
		return refusedWith(err, codes.Aborted, "in use")
	})
	second := v.published
	v.published = first
	v.step("unpublish the first pod", v.unpublish)
	v.published = second
	v.step("the second pod gets the volume", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.published = first
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}

// killedEncrypted kills the node plugin while it encrypts a new volume, and while it closes one.
func (s *scenario) killedEncrypted(p *plugin) {
	k := &killing{scenario: s, plugin: p, encrypted: true, parts: 1, only: func(pt point) bool {
		return pt.call == "run" || pt.call == "end" && pt.process != "spdk-csi" || strings.HasPrefix(pt.process, "cryptsetup") && slices.Contains([]string{"open", "remove"}, pt.call)
	}}
	s.inCase("node plugin killed while it encrypts a volume", func() {
		k.each(killedCall{"stage", nil, callStage}, "ext4")
		k.only = nil // the plugin closes a device without cryptsetup
		k.each(killedCall{"unstage", calls{callStage}, callUnstage}, "ext4")
	})
}

// Encrypted volumes have their own scenario, because deriving keys takes a long time on an emulated
// processor.
func (s *scenario) encryptedVolumes() error {
	return s.withPlugin(func(p *plugin) {
		s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
		if _, ok := s.target.(*scsiTarget); ok {
			s.inCase("encrypted volume", func() { s.encryptedLife(p, "ext4") })
		} else {
			s.encrypted(p)
		}
		s.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
		if _, ok := s.target.(*nvmeTarget); ok {
			s.killedEncrypted(p)
		}
		if p.cmd != nil {
			s.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
		}
	})
}
