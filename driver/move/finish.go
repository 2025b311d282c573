package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
)

// Keep allows nodes to attach the original again, and deletes the snapshot that Prepare has taken.
// The copy remains unchanged, but DeleteOriginal no longer accepts it.
func (m Mover) Keep(ctx context.Context, id request.VolumeID) error {
	was, err := m.Controller.Inspect(ctx, id, oldNodeOf(id))
	if err != nil {
		return err
	}
	if was.CopyUUID != "" {
		err = m.unpublish(id.String(), NodeOf(id, request.VolumeID{UUID: was.CopyUUID}))
	}
	if err == nil && was.Published {
		err = m.unpublish(id.String(), oldNodeOf(id))
	}
	if err != nil {
		return err
	}
	m.discardOrWarn(ctx, id)
	return nil
}

// DeleteOriginal deletes the original of a complete copy. It fails with ErrNotLocked, ErrOtherCopy
// or ErrOldLock if a node could have written to the original since this copy was made, and with
// ErrUnfinished if the copy is not complete. copyContext is the copy's volume context, as in its
// PersistentVolume; it may be nil if the copy does not require authentication.
func (m Mover) DeleteOriginal(ctx context.Context, id, copied request.VolumeID, copyContext map[string]string) error {
	was, err := m.Controller.Inspect(ctx, id, oldNodeOf(id))
	switch {
	case err != nil:
		return err
	case was.Published:
		return fmt.Errorf("volume %s: %w: make sure that the copy has the newest data; then use --keep-original, and delete the original by hand", id, ErrOldLock)
	case was.CopyUUID == "" || was.Others:
		return fmt.Errorf("volume %s: %w: compare it with the copy, and delete it by hand if it is not needed", id, ErrNotLocked)
	}
	if was.CopyUUID != copied.UUID {
		err = fmt.Errorf("%w, with the UUID %s, and nodes could have written to the original since this one was made: name that copy with --copy", ErrOtherCopy, was.CopyUUID)
	} else {
		err = m.isComplete(ctx, id, copied, copyContext)
	}
	if err != nil {
		return fmt.Errorf("the original %s was not deleted: its copy %s: %w", id, copied, err)
	}
	if err := m.unpublish(id.String(), NodeOf(id, copied)); err != nil {
		return err
	}
	if _, err = m.Controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id.String()}); err != nil {
		return err
	}
	m.discardOrWarn(ctx, id)
	return nil
}

// isComplete fails unless a volume is a complete copy of the original. The copy may already be
// published to a node, which is possible only after the copy is complete. A copy that is still
// published to this machine is examined like any other: either it is unfinished, or an earlier call
// was interrupted here.
func (m Mover) isComplete(ctx context.Context, original, copied request.VolumeID, copyContext map[string]string) (err error) {
	node := NodeOf(original, copied)
	was, err := m.Controller.Inspect(ctx, copied, node)
	if err != nil {
		return err
	}
	if is, err := m.Controller.Inspect(ctx, copied, PrepareNodeOf(original)); err != nil || is.Published {
		return cmp.Or(err, ErrUnfinished)
	}
	undo := func() error { // leaves the publication as it was
		if was.Published {
			return nil
		}
		return m.unpublish(copied.String(), node)
	}
	publishContext, mayFormat, err := m.publish(ctx, copied.String(), node, copyContext, onlyRead)
	if errors.Is(err, export.ErrInUse) {
		return nil
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	d, closeDevice, err := m.attach(ctx, node, publishContext, os.O_RDONLY)
	if err != nil {
		return errors.Join(err, undo())
	}
	found, _, err := examine(d, original.String(), mayFormat)
	if err == nil && (mayFormat || found == unfinished) {
		return errors.Join(ErrUnfinished, closeDevice()) // the copy remains published, as it was during copying
	}
	if err != nil && was.Published {
		return errors.Join(err, closeDevice())
	}
	return errors.Join(err, m.withdraw(closeDevice, copied.String(), node))
}
