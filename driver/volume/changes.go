package volume

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"syscall"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Changes contains the clusters of a snapshot that differ from another snapshot, or all allocated
// clusters of the snapshot.
type Changes struct {
	SizeBytes   int64 // size of the snapshot
	ClusterSize int64 // in bytes
	bitmap      []byte
}

// Has reports whether the cluster with this index is among the changes.
func (c Changes) Has(index int64) bool { return c.bitmap[index/8]>>(index%8)&1 == 1 }

// Changes returns the clusters of a snapshot that may differ from base, another snapshot of the
// same volume. If base is "", it returns the allocated clusters. If the clusters are unknown,
// Changes fails with ErrNoChanges or ErrEncrypted, and the caller must read the whole snapshot.
// After ErrReadError, a retry may succeed.
func (s *Service) Changes(ctx context.Context, snapshot, base string) (Changes, error) {
	p := spdkrpc.SpdkgateLvolChangesParams{Snapshot: snapshot}
	ids := []string{snapshot}
	if base != "" {
		p.Base = &base
		ids = append(ids, base)
	}
	var found []Snapshot
	for _, id := range ids {
		v, err := s.GetSnapshot(ctx, id)
		if errors.Is(err, ErrWrongKind) {
			return Changes{}, fmt.Errorf("%w: %v", ErrNotFound, err) // ErrNotFound and ErrWrongKind have different gRPC codes
		}
		if err == nil {
			v, err = s.WithSource(ctx, v)
		}
		if err != nil {
			return Changes{}, err
		}
		found = append(found, v)
	}
	// Kubernetes authorizes callers for the namespace of the snapshot, but passes on any base
	// snapshot. The base might belong to a volume in another namespace.
	if base != "" && base != snapshot && (found[0].SourceUUID == "" || found[0].SourceUUID != found[1].SourceUUID) {
		return Changes{}, fmt.Errorf("target %s: %w: no snapshot %s of the same volume as snapshot %s: make a full backup", s.Name, ErrNotFound, base, snapshot)
	}
	size := found[0].SizeBytes
	r, err := s.rpc.SpdkgateLvolChanges(ctx, p)
	if err != nil {
		return Changes{}, fmt.Errorf("target %s: read the changes of snapshot %s: %w", s.Name, snapshot, noChanges(err))
	}
	bitmap, err := bitmapOf(r, size)
	switch {
	case err != nil:
		return Changes{}, fmt.Errorf("target %s: snapshot %s: %w. Make a full backup", s.Name, snapshot, err)
	case r.LUKS:
		return Changes{}, fmt.Errorf("target %s: %w: snapshot %s is of a volume that a node (with LUKS) or a pod encrypts, so offsets in pods differ from those on the storage server. Make a full backup from within a pod",
			s.Name, ErrEncrypted, snapshot)
	}
	return Changes{SizeBytes: size, ClusterSize: int64(r.ClusterSize), bitmap: bitmap}, nil
}

// Allocated reports which clusters of a volume are allocated or, if base is not empty, may differ
// from base, a snapshot of the same size. Hosts must not write to the volume during the call. If
// the clusters are unknown, Allocated fails with ErrNoChanges.
func (s *Service) Allocated(ctx context.Context, uuid, base string) (inventory.Allocation, error) {
	v, err := s.GetVolume(ctx, uuid)
	if err != nil {
		return inventory.Allocation{}, err
	}
	p := spdkrpc.SpdkgateLvolChangesParams{Snapshot: uuid, AllowVolume: new(true)}
	if base != "" {
		p.Base = &base
		snap, err := s.GetSnapshot(ctx, base)
		if err != nil {
			return inventory.Allocation{}, err
		}
		if snap.SizeBytes != v.SizeBytes {
			return inventory.Allocation{}, fmt.Errorf("target %s: %w: snapshot %s has %d bytes, but volume %s has %d", s.Name, ErrNoChanges, base, snap.SizeBytes, uuid, v.SizeBytes)
		}
	}
	r, err := s.rpc.SpdkgateLvolChanges(ctx, p)
	if err != nil {
		return inventory.Allocation{}, fmt.Errorf("target %s: read the allocated clusters of volume %s: %w", s.Name, uuid, noChanges(err))
	}
	bitmap, err := bitmapOf(r, v.SizeBytes)
	if err != nil {
		return inventory.Allocation{}, fmt.Errorf("target %s: volume %s: %w", s.Name, uuid, err)
	}
	return inventory.Allocation{SizeBytes: v.SizeBytes, ClusterSize: int64(r.ClusterSize), Bitmap: bitmap, Counted: r.Counted}, nil
}

// bitmapOf returns the bitmap in a response about an lvol of size bytes.
func bitmapOf(r spdkrpc.ProxyLvolChanges, size int64) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(r.Bitmap)
	if cluster := int64(r.ClusterSize); err != nil || cluster <= 0 || size%cluster != 0 || int64(len(b)) != (size/cluster+7)/8 || int64(r.Size) != size {
		return nil, fmt.Errorf("%w: spdk-proxy returned an inconsistent response for a snapshot of %d bytes: %d bytes, clusters of %d, a bitmap of %d bytes", ErrNoChanges, size, r.Size, r.ClusterSize, len(b))
	}
	return b, nil
}

// noChanges wraps an error of spdkgate_lvol_changes in ErrNotFound, ErrReadError or ErrNoChanges.
// The text of the error already contains a remedy.
func noChanges(err error) error {
	var rpc *spdkrpc.Error
	if !errors.As(err, &rpc) {
		return err
	}
	switch {
	case rpc.Kind == spdkrpc.NoSuchDevice:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case rpc.Kind == spdkrpc.MethodNotFound:
		return fmt.Errorf("%w: the target's spdk-proxy is too old (%w): upgrade it, or make a full backup", ErrNoChanges, err)
	case rpc.Code == -int(syscall.EIO):
		return fmt.Errorf("%w: %w", ErrReadError, err)
	case rpc.Code == -int(syscall.EINVAL), rpc.Code == -int(syscall.EOPNOTSUPP), rpc.Code == -int(syscall.EBADMSG):
		return fmt.Errorf("%w: %w", ErrNoChanges, err)
	}
	return err
}
