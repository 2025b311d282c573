package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

// An Encrypter opens and closes encrypted devices. *luks.LUKS implements it.
type Encrypter interface {
	Open(ctx context.Context, v luks.Volume) (luks.Plain, error)
	OpenedFromAnother(name, device string) (bool, error)
	MarkUsed(ctx context.Context, name, device string) error
	Resize(ctx context.Context, name string) error
	Close(ctx context.Context, name string) error
}

// SetEncrypter sets the Encrypter. Without an Encrypter, the node refuses encrypted volumes. Call
// SetEncrypter before the node serves requests.
func (n *Node) SetEncrypter(e Encrypter) { n.encrypter = e }

// encryption describes how a volume is encrypted, according to its volume context. The zero value
// means that the volume is not encrypted.
type encryption struct {
	Type     string `json:"type,omitzero"`
	Discards bool   `json:"discards,omitzero"`
}

func (e encryption) requested() bool { return e.Type != "" }

func (r stageRecord) encrypted() bool { return r.Encryption.requested() }

// readEncryption reads the volume context, and ignores the publish context.
func readEncryption(volume map[string]string) (encryption, error) {
	e := encryption{volume[request.KeyEncryption], volume[request.KeyEncryptionDiscards] == "true"}
	if e.requested() && e.Type != request.EncryptionLUKS2 {
		return e, fmt.Errorf("%w: the volume context requires encryption %q, which this version of the driver does not support: use %s, or upgrade the driver on this node", request.ErrInvalid, e.Type, request.EncryptionLUKS2)
	}
	return e, nil
}

// passphrases returns the passphrases in the secrets of NodeStageVolume, or nil if the volume is
// not encrypted. It fails if this node cannot encrypt the volume, so that the caller does not
// connect the volume.
func (n *Node) passphrases(volumeID string, e encryption, secrets map[string]string) (*luks.Keys, error) {
	if !e.requested() {
		return nil, nil
	}
	if n.encrypter == nil {
		return nil, fmt.Errorf("%w: the volume is encrypted, but encryption is not enabled on this node", request.ErrUnsupported)
	}
	if _, err := luks.NameOf(volumeID); err != nil {
		return nil, err
	}
	return luks.ReadKeys(secrets, stageSecret)
}

// passphrasesIfGiven returns the passphrases in the secrets of NodePublishVolume, or nil if there
// are none. NodePublishVolume needs passphrases only if the volume must be opened again.
func (n *Node) passphrasesIfGiven(r stageRecord, secrets map[string]string) (*luks.Keys, error) {
	if !r.encrypted() {
		return nil, nil
	}
	if n.encrypter == nil {
		return nil, fmt.Errorf("%w: the volume is encrypted, but encryption is not enabled on this node", request.ErrUnsupported)
	}
	keys, err := luks.ReadKeys(secrets, publishSecret)
	if errors.Is(err, luks.ErrNoPassphrase) {
		return nil, nil // opening the volume would fail
	}
	return keys, err
}

// filesystemSector is the size in bytes of the encrypted units of a volume with a file system.
// Larger units take less CPU time. Raw block volumes keep the sector size of their device, because
// the application may depend on it.
const filesystemSector, blockSector = 4096, 512

// open opens an encrypted device unless it is already open, and returns the decrypted device. It
// records in stage whether the encrypted device was new.
func (n *Node) open(ctx context.Context, staging string, r stageRecord, device string, stage *mount.Stage) (string, error) {
	name, err := luks.NameOf(r.VolumeID)
	if err != nil {
		return "", err
	}
	stale, err := n.encrypter.OpenedFromAnother(name, device)
	if err != nil {
		return "", err
	}
	if stale {
		n.log.WarnContext(ctx, "the device below an encrypted volume was removed: opening the new one", "volume", r.VolumeID)
		if err := n.mounter.Unmount(ctx, stagePath(staging, r.VolumeID)); err != nil {
			return "", err
		}
	}
	v := luks.Volume{
		Name: name, Device: device, Keys: r.passphrases, ReadOnly: stage.ReadOnly, Shared: stage.Shared, Discards: r.Encryption.Discards,
		SectorSize: filesystemSector, MayFormat: stage.MayFormat, MayFinish: stage.MayFinish,
	}
	if r.Block {
		v.SectorSize = blockSector
	}
	plain, err := n.encrypter.Open(ctx, v)
	if err != nil || !plain.Unused || stage.ReadOnly || stage.Shared {
		return plain.Path, err
	}
	if r.Block {
		return plain.Path, n.encrypter.MarkUsed(ctx, name, device)
	}
	stage.Unused = true
	stage.Ready = func(ctx context.Context) error { return n.encrypter.MarkUsed(ctx, name, device) }
	return plain.Path, nil
}

// closeEncrypted closes the encrypted device of a volume, after its file system has been unmounted.
func (n *Node) closeEncrypted(ctx context.Context, r stageRecord) error {
	if !r.encrypted() || n.encrypter == nil {
		return nil
	}
	for _, t := range r.Targets {
		if r.Block && n.isMounted(t) {
			return fmt.Errorf("%w: the volume is published at %s: unpublish it first", luks.ErrBusy, t)
		}
	}
	name, err := luks.NameOf(r.VolumeID)
	if err != nil {
		return err
	}
	return n.encrypter.Close(ctx, name)
}

// expandEncrypted grows the decrypted device after its underlying device has grown, and the file
// system on it. It returns the size of the volume, which is the size of the decrypted device plus
// the LUKS header.
func (n *Node) expandEncrypted(ctx context.Context, volumeID string, at mount.Point, size int64) (*csi.NodeExpandVolumeResponse, error) {
	name, err := luks.NameOf(volumeID)
	if err != nil {
		return nil, err
	}
	if n.encrypter == nil {
		return nil, fmt.Errorf("%w: the volume is encrypted, but encryption is not enabled on this node", request.ErrUnsupported)
	}
	if err := n.encrypter.Resize(ctx, name); err != nil {
		return nil, err
	}
	if !at.Block {
		if _, err := n.mounter.Grow(ctx, at.Path); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}
