package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// maxRanges is the maximum number of ranges in one message, even if the request allows more,
// because a gRPC message is limited to 4 MiB.
const maxRanges = 16384

// GetMetadataAllocated streams a snapshot's allocated ranges. Unallocated ranges read as zeros.
func (c *Controller) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	q := changesQuery{target: req.GetSnapshotId(), secrets: req.GetSecrets(), start: req.GetStartingOffset(), most: req.GetMaxResults()}
	if q.target == "" {
		return fmt.Errorf("%w: snapshot_id is missing", request.ErrInvalid)
	}
	return c.streamChanges(stream.Context(), q, func(size int64, list []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataAllocatedResponse{BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: size, BlockMetadata: list})
	})
}

// GetMetadataDelta streams the ranges where a snapshot may differ from another snapshot.
func (c *Controller) GetMetadataDelta(req *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	q := changesQuery{target: req.GetTargetSnapshotId(), base: req.GetBaseSnapshotId(), secrets: req.GetSecrets(), start: req.GetStartingOffset(), most: req.GetMaxResults()}
	switch {
	case q.target == "":
		return fmt.Errorf("%w: target_snapshot_id is missing", request.ErrInvalid)
	case q.base == "":
		return fmt.Errorf("%w: base_snapshot_id is missing", request.ErrInvalid)
	}
	return c.streamChanges(stream.Context(), q, func(size int64, list []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataDeltaResponse{BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: size, BlockMetadata: list})
	})
}

// A changesQuery is a request for a snapshot's changes.
type changesQuery struct {
	target, base string // snapshot ids; base is empty for GetMetadataAllocated
	secrets      map[string]string
	start        int64 // offset of the first range to return
	most         int32 // maximum number of ranges in one message; 0 for no limit
}

// streamChanges reads and verifies all changes before it sends any of them.
func (c *Controller) streamChanges(ctx context.Context, q changesQuery, send func(size int64, list []*csi.BlockMetadata) error) error {
	switch {
	case q.start < 0:
		return fmt.Errorf("%w: starting_offset is %d, but must not be negative", volume.ErrOutOfRange, q.start)
	case q.most < 0:
		return fmt.Errorf("%w: max_results is %d, but must not be negative", request.ErrInvalid, q.most)
	}
	found, err := c.readChanges(ctx, q)
	if err != nil {
		return err
	}
	if q.start > found.SizeBytes {
		return fmt.Errorf("%w: starting_offset is %d, beyond the size of the snapshot, %d", volume.ErrOutOfRange, q.start, found.SizeBytes)
	}
	most := int(q.most)
	if most == 0 || most > maxRanges {
		most = maxRanges
	}
	var list []*csi.BlockMetadata
	sent := false
	for r := range rangesOf(found, q.start) {
		if list = append(list, r); len(list) == most {
			if err := send(found.SizeBytes, list); err != nil {
				return err
			}
			list, sent = nil, true
		}
	}
	if len(list) > 0 || !sent { // send the size even if there are no changes
		return send(found.SizeBytes, list)
	}
	return nil
}

// rangesOf returns the changed ranges that end after an offset, in ascending order. Adjacent
// clusters form one range.
func rangesOf(found volume.Changes, start int64) func(yield func(*csi.BlockMetadata) bool) {
	return func(yield func(*csi.BlockMetadata) bool) {
		end := found.SizeBytes / found.ClusterSize
		for i := start / found.ClusterSize; i < end; i++ {
			if !found.Has(i) {
				continue
			}
			first := i
			for i < end && found.Has(i) {
				i++
			}
			if !yield(&csi.BlockMetadata{ByteOffset: first * found.ClusterSize, SizeBytes: (i - first) * found.ClusterSize}) {
				return
			}
		}
	}
}

// readChanges reads the changes, and prevents the controller from deleting either snapshot during
// the read.
func (c *Controller) readChanges(ctx context.Context, q changesQuery) (volume.Changes, error) {
	claim := c.locks.Claim()
	defer claim.Release()
	var ids []request.VolumeID
	for _, text := range []string{q.target, q.base} {
		if text == "" {
			continue
		}
		id, err := request.ParseVolumeID(text)
		if err == nil && id.Target == "" {
			err = fmt.Errorf("%w: %q is not of the form TARGET:UUID", request.ErrNoSuchID, text)
		}
		if err != nil {
			return volume.Changes{}, err
		}
		ids = append(ids, id)
	}
	base := ""
	if len(ids) == 2 {
		if base = ids[1].UUID; ids[0].Target != ids[1].Target {
			return volume.Changes{}, fmt.Errorf("%w: the snapshots %s and %s are on different storage servers: make a full backup", volume.ErrNoChanges, q.base, q.target)
		}
	}
	service, err := c.openTarget(ids[0], q.secrets, snapshotterSecret)
	if err != nil {
		return volume.Changes{}, err
	}
	for _, id := range ids {
		if err := claim.Share(id.UUID); err != nil {
			return volume.Changes{}, err
		}
	}
	return service.Changes(ctx, ids[0].UUID, base)
}
