package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCapabilitiesAreChecked(t *testing.T) {
	const writer, reader, many = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	mount := func(mode csi.VolumeCapability_AccessMode_Mode, fsType string) *csi.VolumeCapability {
		return &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		}
	}
	block := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer}, AccessType: &csi.VolumeCapability_Block{}}
	const readers, unnamed = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	shared := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: many}, AccessType: &csi.VolumeCapability_Block{}}
	require.NoError(t, CheckCapabilities(shared, mount(readers, "ext4")))
	require.ErrorContains(t, CheckCapabilities(mount(many, "")), "volumeMode Block")
	assert.True(t, ReadOnly(mount(readers, "")))
	assert.False(t, ReadOnly(shared))
	for _, c := range []*csi.VolumeCapability{shared, mount(readers, "")} {
		assert.True(t, Shared(block, c))
	}
	assert.False(t, Shared(block, mount(reader, ""), mount(writer, "")))
	assert.False(t, Shared())
	require.NoError(t, CheckCapabilities(mount(writer, ""), mount(writer, "ext4"), mount(reader, "xfs"), block))
	for _, c := range []*csi.VolumeCapability{nil, {AccessMode: block.GetAccessMode()}} {
		require.ErrorIs(t, CheckCapabilities(c), ErrInvalid, c)
	}
	require.ErrorIs(t, CheckCapabilities(), ErrInvalid)
	for _, c := range []*csi.VolumeCapability{mount(many, ""), mount(unnamed, ""), mount(writer, "ntfs")} {
		require.ErrorIs(t, CheckCapabilities(block, c), ErrUnsupported, c)
	}
	assert.True(t, ReadOnly(mount(reader, "")))
	assert.False(t, ReadOnly(block))
}

// The controller and the node reject mount options that could harm a node or belong to another file
// system.
func TestHarmfulMountOptionsAreRejected(t *testing.T) {
	capability := func(fsType string, flags ...string) *csi.VolumeCapability {
		return &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
		}
	}
	require.NoError(t, CheckCapabilities(capability("ext4", "noatime", "errors=remount-ro"), capability("xfs", "noatime,logbsize=256k"), capability("", "compress=zstd")))
	for fsType, options := range map[string][]string{
		"":      {"errors=panic", "device=/dev/sda", "x-mount.mkdir", "bind", "a\u202eb"},
		"ext4":  {"errors=panic", "logbsize=256k", "journal_path=/dev/sde", "sb=131072"},
		"xfs":   {"logdev=/dev/sdc", "compress=zstd", "errors=remount-ro"},
		"btrfs": {"device=/dev/sda", "noload", "fatal_errors=panic"},
	} {
		for _, option := range options {
			err := CheckCapabilities(capability(fsType, "noatime", option))
			require.ErrorIs(t, err, ErrUnsupported, "%s %s", fsType, option)
			require.ErrorContains(t, err, "mount option")
		}
	}
}
