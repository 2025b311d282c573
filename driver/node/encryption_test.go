package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

const passphrase = "a passphrase of 30 characters!"

const mapped = "spdkcsi-" + volID

// fakeLUKS replaces package luks.
type fakeLUKS struct {
	*fakeNode
	open   map[string]luks.Volume // by name
	unused bool
	last   luks.Volume
}

func (f *fakeLUKS) Open(_ context.Context, v luks.Volume) (luks.Plain, error) {
	f.last = v
	if err := f.step("open"); err != nil {
		return luks.Plain{}, err
	}
	if _, ok := f.open[v.Name]; !ok && v.Keys == nil {
		return luks.Plain{}, luks.ErrNoPassphrase
	}
	f.open[v.Name] = v
	return luks.Plain{Path: "/dev/dm-7", Unused: f.unused}, nil
}

func (f *fakeLUKS) OpenedFromAnother(name, device string) (bool, error) {
	v, ok := f.open[name]
	return ok && v.Device != device, f.fail["opened from another"]
}

func (f *fakeLUKS) MarkUsed(_ context.Context, name, device string) error {
	if err := f.step("mark used"); err != nil {
		return err
	}
	f.unused = false
	return nil
}

func (f *fakeLUKS) Resize(_ context.Context, name string) error { return f.step("resize " + name) }

func (f *fakeLUKS) Close(_ context.Context, name string) error {
	if err := f.step("close"); err != nil {
		return err
	}
	delete(f.open, name)
	return nil
}

func newEncryptedNode(t *testing.T) (*Node, *fakeLUKS) {
	n, f := newFakeNode(t)
	l := &fakeLUKS{fakeNode: f, open: map[string]luks.Volume{}, unused: true}
	n.SetEncrypter(l)
	return n, l
}

func (f *fakeLUKS) stageEncrypted(c *csi.VolumeCapability) *csi.NodeStageVolumeRequest {
	req := f.stageRequest(c)
	req.VolumeContext[request.KeyEncryption] = "luks2"
	req.Secrets = map[string]string{luks.SecretPassphrase: passphrase}
	return req
}

// A new volume is encrypted, then formatted, then marked as used. When it is unstaged, the volume
// is closed before it is disconnected.
func TestEncryptedVolumeIsFormattedAndClosedInOrder(t *testing.T) {
	n, f := newEncryptedNode(t)
	req := f.stageEncrypted(writer)
	req.VolumeContext[request.KeyEncryptionDiscards] = "true"
	_, err := n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, []string{"connect", "open", "mount"}, f.log)
	assert.Equal(t, luks.Volume{Name: mapped, Device: "/dev/" + lvolUUID, Keys: f.last.Keys, Discards: true, SectorSize: 4096, MayFormat: true, MayFinish: true}, f.last)
	assert.Equal(t, passphrase, f.last.Keys.Current.Reveal())
	assert.Equal(t, "/dev/dm-7", f.stage.Device)
	assert.True(t, f.stage.Unused)
	require.NoError(t, f.stage.Ready(t.Context()), "package mount calls it after mkfs")
	assert.False(t, f.unused)
	text, err := os.ReadFile(filepath.Join(f.staging, recordName))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"encryption":{"type":"luks2","discards":true}`)
	assert.NotContains(t, string(text), passphrase)

	_, err = n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	assert.False(t, f.stage.Unused)
	assert.Nil(t, f.stage.Ready)
	assert.False(t, f.last.MayFormat || f.last.MayFinish, "it was used on this node")

	target := filepath.Join(t.TempDir(), "target")
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	require.NoError(t, err)
	f.log = nil
	resp, err := n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: volID, VolumePath: target, StagingTargetPath: f.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 4096},
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"rescan 4096", "resize " + mapped, "grow"}, f.log)
	assert.EqualValues(t, 4096, resp.GetCapacityBytes(), "the size of the volume, with its header")

	_, err = n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volID, TargetPath: target})
	require.NoError(t, err)
	n = f.node() // another process without a passphrase
	n.SetEncrypter(f)
	f.log = nil
	f.fail["close"] = luks.ErrBusy
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	assert.NotEmpty(t, f.connected)
	delete(f.fail, "close")
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.NoError(t, err)
	assert.Equal(t, []string{"unmount", "close", "unmount", "close", "disconnect"}, f.log)
	assert.Empty(t, f.open)
	assert.False(t, f.hasRecord())
}

func TestEncryptedRawBlockVolumeIsPublished(t *testing.T) {
	n, f := newEncryptedNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageEncrypted(block))
	require.NoError(t, err)
	assert.Equal(t, []string{"connect", "open", "mark used"}, f.log)
	assert.Equal(t, 512, f.last.SectorSize)
	target := filepath.Join(t.TempDir(), "target")
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(block, target))
	require.NoError(t, err)
	assert.Equal(t, "/dev/dm-7", f.mounts[target].Device)
	assert.False(t, f.last.MayFormat || f.last.MayFinish)

	resp, err := n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: volID, VolumePath: target, StagingTargetPath: f.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 8192},
	})
	require.NoError(t, err)
	assert.EqualValues(t, 8192, resp.GetCapacityBytes())
	assert.Contains(t, f.log, "resize "+mapped)
	assert.NotContains(t, f.log, "grow")

	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	require.ErrorContains(t, err, target)
	assert.NotEmpty(t, f.open, "a bind mount does not keep the device open")
}

// Without a usable passphrase, the volume is not connected. If the passphrase is wrong, the call
// undoes every step and fails.
func TestUnusablePassphrasesAreRejected(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(n *Node, f *fakeLUKS, req *csi.NodeStageVolumeRequest)
		code   codes.Code
		says   string
		log    []string
	}{
		"no passphrase": {func(_ *Node, _ *fakeLUKS, req *csi.NodeStageVolumeRequest) { req.Secrets = nil }, codes.FailedPrecondition, "node-stage-secret-name", nil},
		"short passphrase": {func(_ *Node, _ *fakeLUKS, req *csi.NodeStageVolumeRequest) {
			req.Secrets[luks.SecretPassphrase] = "short"
		}, codes.InvalidArgument, "16 to 512 bytes", nil},
		"unknown encryption": {func(_ *Node, _ *fakeLUKS, req *csi.NodeStageVolumeRequest) {
			req.VolumeContext[request.KeyEncryption] = "luks3"
		}, codes.InvalidArgument, "luks3", nil},
		"cannot encrypt": {func(n *Node, _ *fakeLUKS, _ *csi.NodeStageVolumeRequest) { n.encrypter = nil }, codes.InvalidArgument, "encryption is not enabled on this node", nil},
		"unusable id":    {func(_ *Node, _ *fakeLUKS, req *csi.NodeStageVolumeRequest) { req.VolumeId = "a b" }, codes.InvalidArgument, "mapping", nil},
		"wrong passphrase": {func(_ *Node, f *fakeLUKS, _ *csi.NodeStageVolumeRequest) { f.fail["open"] = luks.ErrWrongPassphrase },
			codes.FailedPrecondition, "wrong passphrase", []string{"connect", "open", "unmount", "close", "disconnect"}},
		"other data": {func(_ *Node, f *fakeLUKS, _ *csi.NodeStageVolumeRequest) { f.fail["open"] = luks.ErrNotEncrypted },
			codes.FailedPrecondition, "not encrypted", []string{"connect", "open", "unmount", "close", "disconnect"}},
		"mount fails": {func(_ *Node, f *fakeLUKS, _ *csi.NodeStageVolumeRequest) { f.fail["mount"] = mount.ErrDamaged },
			codes.FailedPrecondition, "damaged", []string{"connect", "open", "mount", "unmount", "close", "disconnect"}},
		"cannot be undone": {func(_ *Node, f *fakeLUKS, _ *csi.NodeStageVolumeRequest) {
			f.fail["open"], f.fail["close"] = luks.ErrWrongPassphrase, luks.ErrBusy
		}, codes.Aborted, "wrong passphrase", []string{"connect", "open", "unmount", "close"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, f := newEncryptedNode(t)
			req := f.stageEncrypted(writer)
			tt.change(n, f, req)
			_, err := n.NodeStageVolume(t.Context(), req)
			drivertest.RequireCode(t, tt.code, driver.Status(err))
			require.ErrorContains(t, err, tt.says)
			assert.NotContains(t, err.Error(), passphrase)
			assert.Equal(t, tt.log, slices.DeleteFunc(f.log, func(s string) bool { return tt.log == nil && s == "unmount" }))
			assert.Equal(t, f.fail["close"] != nil, f.hasRecord())
		})
	}
}

// A volume cannot be staged again with different encryption while it is staged.
func TestEncryptionCannotChangeWhileStaged(t *testing.T) {
	n, f := newEncryptedNode(t)
	req := f.stageEncrypted(writer)
	_, err := n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	delete(req.VolumeContext, request.KeyEncryption)
	_, err = n.NodeStageVolume(t.Context(), req)
	require.ErrorIs(t, err, request.ErrConflict)
	assert.Contains(t, f.open, mapped)
}

// If the device below an encrypted volume has been removed, NodePublishVolume closes the encrypted
// device and opens the new device, which requires the passphrase.
func TestPublishReopensTheEncryptedDevice(t *testing.T) {
	for name, c := range map[string]*csi.VolumeCapability{"file system": writer, "raw block": block} {
		t.Run(name, func(t *testing.T) {
			n, f := newEncryptedNode(t)
			_, err := n.NodeStageVolume(t.Context(), f.stageEncrypted(c))
			require.NoError(t, err)
			target := filepath.Join(t.TempDir(), "target")
			lost := f.open[mapped]
			lost.Device = "/dev/removed"
			f.open[mapped] = lost
			f.fail["check"] = mount.ErrUnreadable
			f.log = nil
			req := f.publishRequest(c, target)
			req.Secrets = map[string]string{luks.SecretPassphrase: "short"}
			_, err = n.NodePublishVolume(t.Context(), req)
			drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
			req.Secrets[luks.SecretPassphrase] = passphrase
			_, err = n.NodePublishVolume(t.Context(), req)
			require.NoError(t, err)
			assert.Contains(t, strings.Join(f.log, ","), "unmount,open")
			assert.Equal(t, passphrase, f.last.Keys.Current.Reveal())
			assert.False(t, f.last.MayFormat || f.last.MayFinish)

			delete(f.open, mapped)
			_, err = n.NodePublishVolume(t.Context(), f.publishRequest(c, target))
			drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
			require.ErrorIs(t, err, luks.ErrNoPassphrase)
		})
	}
}

// The node informs the Encrypter whether a volume is used read-only or by several nodes, so that
// the Encrypter does not change the header in these cases.
func TestReadOnlyAndSharedModesArePassedToEncryption(t *testing.T) {
	for _, c := range []*csi.VolumeCapability{
		drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, false),
		drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, true),
	} {
		n, f := newEncryptedNode(t)
		_, err := n.NodeStageVolume(t.Context(), f.stageEncrypted(c))
		require.NoError(t, err)
		assert.True(t, f.last.Shared)
		assert.Equal(t, request.ReadOnly(c), f.last.ReadOnly)
		assert.NotContains(t, f.log, "mark used")
	}
}

// Passphrases are never logged, even if every step fails.
func TestPassphrasesAreNotLogged(t *testing.T) {
	n, f := newEncryptedNode(t)
	var log strings.Builder
	n.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	broken := errors.New("broken")
	for _, step := range []string{"connect", "opened from another", "open", "mount", "close", "disconnect"} {
		f.fail[step] = broken
		req := f.stageEncrypted(writer)
		_, err := n.NodeStageVolume(t.Context(), req)
		if err != nil {
			assert.NotContains(t, err.Error(), passphrase)
		}
		delete(f.fail, step)
	}
	assert.NotContains(t, log.String(), passphrase)
}

// A call for an encrypted volume never returns OK if one of its steps fails. A retry succeeds.
func TestFailedStepFailsTheCallForAnEncryptedVolume(t *testing.T) {
	stage := func(ctx context.Context, n *Node, f *fakeLUKS, c *csi.VolumeCapability) error {
		_, err := n.NodeStageVolume(ctx, f.stageEncrypted(c))
		return err
	}
	expand := func(ctx context.Context, n *Node, f *fakeLUKS, path string) error {
		_, err := n.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: volID, VolumePath: path, StagingTargetPath: f.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 8192}})
		return err
	}
	for name, c := range map[string]struct {
		capability *csi.VolumeCapability
		stale      bool // whether the mapping was opened from another device
		steps      []string
		do         func(ctx context.Context, n *Node, f *fakeLUKS) error
	}{
		"stage": {writer, false, []string{"connect", "opened from another", "open", "mount"}, func(ctx context.Context, n *Node, f *fakeLUKS) error {
			return stage(ctx, n, f, writer)
		}},
		"stage a device": {block, false, []string{"connect", "opened from another", "open", "mark used"}, func(ctx context.Context, n *Node, f *fakeLUKS) error {
			return stage(ctx, n, f, block)
		}},
		"stage a removed device again": {writer, true, []string{"unmount", "open"}, func(ctx context.Context, n *Node, f *fakeLUKS) error {
			return stage(ctx, n, f, writer)
		}},
		"unstage": {writer, false, []string{"unmount", "close", "disconnect"}, func(ctx context.Context, n *Node, f *fakeLUKS) error {
			_, err := n.NodeUnstageVolume(ctx, f.unstageRequest())
			return err
		}},
		"expand": {writer, false, []string{"rescan 8192", "resize " + mapped, "grow"}, func(ctx context.Context, n *Node, f *fakeLUKS) error {
			return expand(ctx, n, f, stagePath(f.staging, volID))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range c.steps {
				n, f := newEncryptedNode(t)
				if !strings.HasPrefix(name, "stage") || c.stale {
					require.NoError(t, stage(t.Context(), n, f, c.capability))
				}
				if c.stale {
					f.open[mapped] = luks.Volume{Device: "/dev/removed"}
				}
				f.fail[step] = errBroken
				require.ErrorIs(t, c.do(t.Context(), n, f), errBroken, step)
				delete(f.fail, step)
				require.NoError(t, c.do(t.Context(), n, f), step)
			}
		})
	}
	n, f := newEncryptedNode(t)
	require.NoError(t, stage(t.Context(), n, f, writer))
	n.encrypter = nil
	require.ErrorIs(t, expand(t.Context(), n, f, stagePath(f.staging, volID)), request.ErrUnsupported)
}
