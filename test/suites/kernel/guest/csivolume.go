package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
)

// csiVolume is a volume on the target, used through calls to CSI's node service. Its methods make
// the calls that kubelet makes during a pod's life.
type csiVolume struct {
	*scenario
	*plugin
	pod
	name    string
	id      string
	context map[string]string // volume context and publish context
	fsType  string            // empty: raw block
	secrets map[string]string // for the calls
	ro      bool              // ReadOnlyMany
	ending  bool              // the pod is terminating
	sum     [sha256.Size]byte
	cleanup func() error // called after the volume has been removed from the target; may be nil
}

// newCSIVolume creates a volume on the target. fsType is empty for a raw block volume.
func (s *scenario) newCSIVolume(p *plugin, name string, bytes int64, fsType string) *csiVolume {
	v := &csiVolume{scenario: s, plugin: p, pod: podOf(name), name: name, id: "t0:" + name, fsType: fsType}
	s.step("target: create "+name, func(ctx context.Context) (string, error) { return "", v.create(ctx, bytes) })
	return v
}

func (v *csiVolume) create(ctx context.Context, bytes int64) (err error) {
	v.context, err = v.target.make(ctx, v.name, bytes, connect.HostOf(nodeID))
	if err == nil && v.context[request.KeyMayFormat] == "" {
		v.context[request.KeyMayFormat] = "true"
	}
	return err
}

func (v *csiVolume) delete() {
	v.step("target: remove "+v.name, func(ctx context.Context) (string, error) {
		err := v.target.remove(ctx, v.name)
		if v.cleanup != nil {
			err = errors.Join(err, v.cleanup())
		}
		return "", err
	})
}

func (v *csiVolume) capability() *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if v.ro {
		c.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: v.fsType}}
	if v.fsType == "" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}

func (v *csiVolume) stage(ctx context.Context) (string, error) {
	if err := v.prepare(); err != nil {
		return "", err
	}
	_, err := v.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability(), VolumeContext: v.context, PublishContext: v.context, Secrets: v.secrets,
	})
	return "", err
}

func (v *csiVolume) publish(ctx context.Context) (string, error) {
	_, err := v.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.published, VolumeCapability: v.capability(),
		VolumeContext: v.context, PublishContext: v.context, Readonly: v.ro, Secrets: v.secrets,
	})
	return "", err
}

func (v *csiVolume) unpublish(ctx context.Context) (string, error) {
	_, err := v.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.published})
	return "", err
}

func (v *csiVolume) unstage(ctx context.Context) (string, error) {
	_, err := v.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging})
	return "", err
}

// expand resizes the volume on the target and then on the node.
func (v *csiVolume) expand(to int64) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := v.target.resize(ctx, v.name, to); err != nil {
			return "", err
		}
		r, err := v.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId: v.id, VolumePath: v.published, StagingTargetPath: v.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: to},
		})
		if err == nil && r.CapacityBytes != to {
			err = fmt.Errorf("expanded to %d bytes, want %d", r.CapacityBytes, to)
		}
		return fmt.Sprintf("%d MiB", r.GetCapacityBytes()/mib), err
	}
}

// stats checks that the volume has at least the given number of bytes.
func (v *csiVolume) stats(atLeast int64) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		r, err := v.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.published, StagingTargetPath: v.staging})
		if err != nil {
			return "", err
		}
		total := r.Usage[0].Total
		if total < atLeast {
			err = fmt.Errorf("has %d bytes in total, want at least %d", total, atLeast)
		}
		return fmt.Sprintf("%d MiB", total/mib), err
	}
}

// file returns the file that a pod writes to: a file on the file system, or the raw block device.
func (v *csiVolume) file() string {
	if v.fsType == "" {
		return v.published
	}
	return filepath.Join(v.published, "data")
}

const dataBytes = 4 * mib

// write writes and syncs random bytes.
func (v *csiVolume) write(context.Context) (string, error) {
	data := make([]byte, dataBytes)
	rand.Read(data)
	flags := os.O_WRONLY
	if v.fsType != "" {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(v.file(), flags, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		v.sum = sha256.Sum256(data)
	}
	return fmt.Sprintf("%d MiB", dataBytes/mib), err
}

// read reads the bytes from the device, not from the page cache, and compares them with those
// written.
func (v *csiVolume) read(context.Context) (string, error) {
	if err := write("/proc/sys/vm/drop_caches", "3"); err != nil {
		return "", err
	}
	f, err := os.Open(v.file())
	if err != nil {
		return "", err
	}
	defer f.Close()
	data := make([]byte, dataBytes)
	if _, err := f.ReadAt(data, 0); err != nil {
		return "", err
	}
	if sha256.Sum256(data) != v.sum {
		return "", errors.New("the bytes read differ from those written")
	}
	return "the same bytes", nil
}

// gone checks that no trace of the volume remains on the node.
func (v *csiVolume) gone(context.Context) (string, error) {
	return "", errors.Join(v.remove(), nothingMounted(v.name), notMapped(v.id), notConnected(v.context[connect.KeyNQN]), notLoggedIn(v.context[connect.KeyIQN]))
}

func nothingMounted(name string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/"+name+"/") {
			err = errors.Join(err, fmt.Errorf("still mounted: %s", line))
		}
	}
	return err
}

// notConnected checks that sysfs contains no controller and no subsystem with this name.
func notConnected(nqn string) error {
	var left []string
	for _, pattern := range []string{"/sys/class/nvme/*/subsysnqn", "/sys/class/nvme-subsystem/*/subsysnqn"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && nqn != "" && strings.TrimSpace(string(text)) == nqn {
				left = append(left, file)
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("namespaces are left in sysfs: %v", left)
	}
	return nil
}

func notLoggedIn(iqn string) error {
	files, err := filepath.Glob("/sys/class/iscsi_session/*/targetname")
	for _, file := range files {
		if text, readErr := os.ReadFile(file); readErr == nil && iqn != "" && strings.TrimSpace(string(text)) == iqn {
			err = errors.Join(err, fmt.Errorf("left in sysfs: %s", file))
		}
	}
	return err
}

// refusedWith checks the code and the text of an error, and returns the text for the report.
func refusedWith(err error, code codes.Code, texts ...string) (string, error) {
	s, _ := status.FromError(err)
	if s.Code() != code {
		return "", fmt.Errorf("got %v: %v, want code %v", s.Code(), err, code)
	}
	for _, text := range texts {
		if !strings.Contains(s.Message(), text) {
			return "", fmt.Errorf("got %q, want it to contain %q", s.Message(), text)
		}
	}
	return s.Code().String() + ": " + s.Message(), nil
}
