package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/request"
)

var (
	// ErrLocked means that a move has begun, so that no node can attach the original.
	ErrLocked = errors.New("a move of the volume has begun: repeat the command without --prepare")
	// ErrPrepared means that the copy has been prepared before.
	ErrPrepared = errors.New("already prepared: stop the pods, and repeat the command without --prepare; or see docs/moving.md to begin again with the current data")
	// ErrOtherBase means that the copy contains data of a different snapshot.
	ErrOtherBase = errors.New("the unfinished copy was started from a different snapshot: delete the copy (spdk-csi doctor --delete-volume), and repeat the command; or move the volume without --prepare")
)

// PrepareNodeOf returns the node that a copy is published to until the volume is moved. It differs
// from NodeOf, so that a move can stop all writes of an earlier Prepare by withdrawing the copy
// from this node.
func PrepareNodeOf(id request.VolumeID) string { return request.MovePrepareNode(id.UUID) }

// Prepare takes a snapshot of a volume that nodes may be using, copies the snapshot, and verifies
// the copy. A later Copy then copies only the changes since the snapshot. Prepare has the same
// parameters as Copy. The snapshot exists until Copy succeeds, or until Keep or DeleteOriginal is
// called. If Prepare fails, a repeated Prepare continues with the same snapshot.
func (m Mover) Prepare(ctx context.Context, id request.VolumeID, volumeContext, parameters map[string]string) (result Result, err error) {
	node := PrepareNodeOf(id)
	was, err := m.Controller.Inspect(ctx, id, oldNodeOf(id))
	if err != nil {
		return Result{}, err
	}
	if was.CopyUUID != "" || was.Published {
		return Result{}, fmt.Errorf("volume %s: %w", id, ErrLocked)
	}
	earlier, _, err := m.Controller.FindNamed(ctx, id, request.MoveBaseName(id.UUID), request.MoveSourceName(id.UUID))
	if err != nil {
		return Result{}, err
	}
	if result.Volume, err = m.createCopy(ctx, id, was.SizeBytes, parameters); err != nil {
		return Result{}, err
	}
	to, mayFormat, err := m.publish(ctx, result.id(), node, result.Volume.GetVolumeContext(), m.Filesystem)
	if err != nil {
		return Result{}, fmt.Errorf("lock the copy: %w", err)
	}
	copied, closeCopy, err := m.attach(ctx, node, to, os.O_RDWR)
	if err != nil {
		return Result{}, fmt.Errorf("attach the copy, %s: %w", result.id(), err)
	}
	defer func() { err = errors.Join(err, closeCopy()) }()
	found, base, err := examine(copied, id.String(), mayFormat)
	switch {
	case err != nil:
	case found == finished:
		err = ErrCopied
	case base != "" && earlier == snapshotID(id, base):
		return Result{}, fmt.Errorf("volume %s: %w", result.id(), ErrPrepared)
	case found == unfinished && (base != "" || earlier == ""):
		err = ErrOtherBase
	}
	if err != nil {
		return Result{}, errors.Join(fmt.Errorf("volume %s: %w", result.id(), err), m.withdraw(closeCopy, result.id(), node))
	}

	taken, err := m.Controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: request.MoveBaseName(id.UUID), SourceVolumeId: id.String()})
	if err != nil {
		return Result{}, fmt.Errorf("take a snapshot of %s: %w", id, err)
	}
	snapshot := taken.GetSnapshot().GetSnapshotId()
	if err := m.prepareFrom(ctx, id, snapshot, volumeContext, copied, &result); err != nil {
		return Result{}, fmt.Errorf("copy snapshot %s of volume %s to %s: %w. Repeat the command; to delete the snapshot instead, use --keep-original", snapshot, id, result.id(), err)
	}
	return result, nil
}

// prepareFrom copies a snapshot, verifies the copy, and records the snapshot in the copy's mark.
func (m Mover) prepareFrom(ctx context.Context, original request.VolumeID, snapshot string, volumeContext map[string]string, copied *device, result *Result) (err error) {
	id, err := request.ParseVolumeID(snapshot)
	if err != nil {
		return err
	}
	if err := copied.setFirst(markOf(original.String(), "")); err != nil {
		return err
	}
	created, err := m.Controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: request.MoveSourceName(original.UUID), VolumeCapabilities: []*csi.VolumeCapability{capability(m.Filesystem)}, CapacityRange: &csi.CapacityRange{RequiredBytes: 1},
		// Nothing is written, so nothing must be cleared. Some releases cannot clear clones.
		Parameters:          map[string]string{"clearMethod": "unmap-may-expose-deleted-data"},
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}},
	})
	if err != nil {
		return err
	}
	source, err := request.ParseVolumeID(created.GetVolume().GetVolumeId())
	if err != nil {
		return err
	}
	e, _, err := m.publish(ctx, source.String(), PrepareNodeOf(original), volumeContext, onlyRead)
	if err != nil {
		return err
	}
	from, closeSource, err := m.attach(ctx, PrepareNodeOf(original), e, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	if size := created.GetVolume().GetCapacityBytes(); from.size != size || copied.size < size {
		return fmt.Errorf("volume %s has %d bytes on its target, but %d on this machine, and the copy %d: disconnect both and repeat", source, size, from.size, copied.size)
	}
	state := &moving{from: from, to: copied, marked: true}
	clusters := &allocations{m: m, original: source, copied: result.id()}
	from.allocated = clusters.ofOriginal(ctx, from.size)
	if _, err := m.copyAndVerify(ctx, state, clusters); err != nil {
		return err
	}
	result.SizeBytes, result.ReadBytes, result.WrittenBytes = from.size, from.read.Load(), state.written.Load()

	// The temporary volume must still equal the snapshot.
	changed, err := clusters.get(ctx, source.String(), id.UUID, from.size)
	if err == nil && !changed.Counted {
		err = errUncounted
	}
	switch {
	case err != nil:
		m.warn("the move will read the whole volume, because the changes since the snapshot cannot be listed", "snapshot", snapshot, "error", err)
		if err := closeSource(); err != nil {
			return err
		}
		return m.discard(ctx, original)
	case !isZero(changed.Bitmap):
		return fmt.Errorf("%w: the temporary volume %s", ErrChanged, source)
	}
	if err := closeSource(); err != nil {
		return err
	}
	if err := m.deleteSource(ctx, original, source.String()); err != nil {
		return err
	}
	mark := markOf(original.String(), id.UUID)
	if err := copied.setFirst(mark); err != nil {
		return err
	}
	got, err := copied.first()
	if err == nil && !bytes.Equal(got, mark) {
		err = fmt.Errorf("%w in the first %d bytes", ErrDiffers, markBytes)
	}
	return err
}

// stopPrepare withdraws the copy from the node of Prepare, so that an earlier Prepare that is still
// running can no longer write to the copy. prepared reports whether only that node could write to
// the copy. isNew reports whether the copy had never been used before it was withdrawn.
func (m Mover) stopPrepare(ctx context.Context, original request.VolumeID, copied *csi.Volume) (prepared, isNew bool, err error) {
	id, err := request.ParseVolumeID(copied.GetVolumeId())
	if err != nil {
		return false, false, err
	}
	node := PrepareNodeOf(original)
	is, err := m.Controller.Inspect(ctx, id, node)
	if err != nil || !is.Published || is.Others {
		return false, false, err
	}
	if _, isNew, err = m.publish(ctx, id.String(), node, copied.GetVolumeContext(), m.Filesystem); err != nil {
		return false, false, err
	}
	return true, isNew, m.unpublish(id.String(), node)
}

// snapshotID returns the id of a snapshot of a volume.
func snapshotID(original request.VolumeID, uuid string) string {
	return request.VolumeID{Target: original.Target, UUID: uuid}.String()
}

// deleteSource deletes the temporary volume.
func (m Mover) deleteSource(ctx context.Context, original request.VolumeID, source string) error {
	if err := m.unpublish(source, PrepareNodeOf(original)); err != nil {
		return err
	}
	_, err := m.Controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: source})
	return err
}

// discard deletes the snapshot and the temporary volume that Prepare has created, if they exist.
func (m Mover) discard(ctx context.Context, original request.VolumeID) error {
	snapshot, source, err := m.Controller.FindNamed(ctx, original, request.MoveBaseName(original.UUID), request.MoveSourceName(original.UUID))
	if err != nil {
		return err
	}
	if source != "" {
		if err := m.deleteSource(ctx, original, source); err != nil {
			return fmt.Errorf("delete the temporary volume %s and the snapshot: %w", source, err)
		}
	}
	if snapshot != "" {
		if _, err := m.Controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot}); err != nil {
			return fmt.Errorf("delete snapshot %s: %w", snapshot, err)
		}
	}
	return nil
}

// discardOrWarn is like discard, but logs a failure instead of returning it.
func (m Mover) discardOrWarn(ctx context.Context, original request.VolumeID) {
	if err := m.discard(ctx, original); err != nil {
		m.warn("what --prepare created was not deleted: repeat the command, or delete what spdk-csi doctor reports", "volume", original, "error", err)
	}
}

func (m Mover) warn(text string, args ...any) {
	if m.Log != nil {
		m.Log.Warn(text, args...)
	}
}
