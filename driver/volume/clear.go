package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// clearMethod returns the SPDK clear method that implements c in an lvstore.
func clearMethod(st Store, c class.Clear) spdkrpc.LvolClearMethod {
	switch {
	case c == class.ClearWriteZeroes:
		return spdkrpc.LvolClearMethodWriteZeroes
	case c == class.ClearUnmap || c != class.ClearNone && st.unmapZeroes:
		return spdkrpc.LvolClearMethodUnmap
	case c == class.ClearNone:
		return spdkrpc.LvolClearMethodNone
	}
	return spdkrpc.LvolClearMethodWriteZeroes
}

// mallocProduct is the product name of bdevs in memory. No other field in the response to
// bdev_get_bdevs identifies these bdevs.
const mallocProduct = "Malloc disk"

// unmapZeroes reports whether the bdev below an lvstore zeroes the blocks that it unmaps. In SPDK's
// source, two kinds of bdev zero the unmapped range: bdev_malloc writes zeroes, and bdev_aio with
// fallocate punches holes. NVMe devices may ignore deallocation. Other bdevs forward the unmap to a
// bdev that is unknown here. bdev_aio without fallocate does nothing but reports success. If the
// proxy hides the bdev from the driver's user, unmapZeroes returns false.
func unmapZeroes(b spdkrpc.BdevInfo) bool {
	aio := b.DriverSpecific.AIO
	return b.SupportedIOTypes.Unmap && (b.ProductName == mallocProduct || aio != nil && value(aio.Fallocate))
}

// createClone creates a clone of parent. bdev_lvol_clone does not record a clear method: after a
// restart of the target, the clusters that such a clone frees are unmapped, regardless of the
// method of its origin. If unmapping does not zero the clusters, createClone instead creates an
// empty volume with its own clear method and then sets its parent.
func (s *Service) createClone(ctx context.Context, st Store, parent Volume, name string, c class.Clear) (id string, err error) {
	method := clearMethod(st, c)
	if method != spdkrpc.LvolClearMethodWriteZeroes {
		return s.rpc.BdevLvolClone(ctx, spdkrpc.BdevLvolCloneParams{SnapshotName: parent.UUID, CloneName: name})
	}
	release, err := s.rpc.Release(ctx)
	if err != nil {
		return "", fmt.Errorf("target %s: read the target's release: %w", s.Name, err)
	}
	if !release.Has(rpcschema.SetsParent) {
		return "", fmt.Errorf("%w: SPDK %s does not record a clear method for clones, and bdev %s below lvstore %s may not zero unmapped blocks, so other users could read the clone's data after its deletion: "+
			"run SPDK %s or later, or set clearMethod to %s in the StorageClass", ErrExposes, release, st.Base, st.Name, rpcschema.SetsParent.Since(), class.ClearUnmap)
	}
	id, failed := s.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{
		LvolName: name, UUID: &st.UUID, SizeInMiB: max(1, uint64(parent.SizeBytes/MiB)), ThinProvision: new(true), ClearMethod: &method,
	})
	if failed != nil && !readback.Clarifies(failed) {
		return "", failed
	}
	v, err := s.findCreated(ctx, st.Name, name, id, true)
	switch {
	case errors.Is(err, ErrNotFound) && failed != nil:
		return "", failed
	case err != nil:
		return "", err
	case v.UUID != id && !isUnfinishedClone(v, parent): // another call created it
		return "", nil
	}
	if v.SizeBytes < parent.SizeBytes { // the source has grown since v was created
		if err := s.rpc.BdevLvolResize(ctx, spdkrpc.BdevLvolResizeParams{Name: v.UUID, SizeInMiB: uint64(parent.SizeBytes / MiB)}); err != nil {
			return "", err
		}
	}
	// If SPDK refuses to set the parent, keep the volume, because another call for the same name
	// may have made the volume a clone or be about to. The caller reads the volume again, and a
	// retry completes the clone.
	return id, s.setParent(ctx, v, parent, name)
}

// setParent makes a snapshot the parent of an empty volume.
func (s *Service) setParent(ctx context.Context, v, parent Volume, name string) error {
	p := spdkrpc.BdevLvolSetParentParams{LvolName: v.UUID, ParentName: parent.UUID}
	failed := s.rpc.BdevLvolSetParent(ctx, p)
	if failed == nil || !readback.Refused(failed) || len(parent.Clones) > 0 {
		return failed
	}
	// After a restart of the target, SPDK treats a snapshot without clones as a read-only volume,
	// which can be cloned but cannot be set as a parent. Once a helper clone exists, SPDK no longer
	// treats the snapshot as a volume.
	helper := helperName(name)
	_, cloned := s.rpc.BdevLvolClone(ctx, spdkrpc.BdevLvolCloneParams{SnapshotName: parent.UUID, CloneName: helper})
	made, err := s.lookUp(ctx, parent.Store+"/"+helper)
	if err != nil {
		return errors.Join(failed, cloned, err)
	}
	return errors.Join(s.rpc.BdevLvolSetParent(ctx, p), s.remove(ctx, made))
}

// isUnfinishedClone reports whether v may be a clone of source that has no parent yet. Such a clone
// has no data, and is smaller than the source if the source has grown since the clone was created.
func isUnfinishedClone(v, source Volume) bool {
	return v.Thin && !v.Snapshot && !v.used() && v.Base == "" && v.Allocated != nil && *v.Allocated == 0 && v.SizeBytes <= source.SizeBytes && v.Store == source.Store
}
