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

// Keep lets nodes attach the original again, and deletes the snapshot that Prepare has taken. The
// copy remains unchanged.
func (m Mover) Keep(ctx context.Context, id request.VolumeID) error {
	if err := m.release(ctx, id); err != nil {
		return err
	}
	m.discardOrWarn(ctx, id)
	return nil
}

func (m Mover) release(ctx context.Context, id request.VolumeID) error {
	_, err := m.Controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id.String(), NodeId: NodeOf(id), Secrets: m.Secrets})
	return err
}

// DeleteOriginal deletes the original of a complete copy. It fails with ErrNotLocked if a node
// could have written to the original since it was copied, and with ErrUnfinished if the copy is not
// complete. copyContext is the copy's volume context, as in its PersistentVolume; it may be nil if
// the copy does not require authentication.
func (m Mover) DeleteOriginal(ctx context.Context, id, copied request.VolumeID, copyContext map[string]string) error {
	was, err := m.Controller.Inspect(ctx, id, "", NodeOf(id))
	if err != nil {
		return err
	}
	if !was.Published {
		return fmt.Errorf("volume %s: %w: compare it with the copy, and delete it by hand if it is not needed", id, ErrNotLocked)
	}
	if err := m.isComplete(ctx, id, copied, copyContext); err != nil {
		return fmt.Errorf("the original %s was not deleted: its copy %s: %w", id, copied, err)
	}
	if err := m.release(ctx, id); err != nil {
		return err
	}
	if _, err = m.Controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id.String()}); err != nil {
		return err
	}
	m.discardOrWarn(ctx, id)
	return nil
}

// isComplete fails unless a volume is a complete copy of the original. The copy may already be
// published to a node, which happens only once the copy is complete.
func (m Mover) isComplete(ctx context.Context, original, copied request.VolumeID, copyContext map[string]string) (err error) {
	is, err := m.Controller.Inspect(ctx, copied, request.MoveCopyName(original.UUID), NodeOf(original))
	switch {
	case err != nil:
		return err
	case !is.Named:
		return ErrNotCopy
	case is.Published:
		return ErrUnfinished
	}
	if is, err = m.Controller.Inspect(ctx, copied, "", PrepareNodeOf(original)); err != nil || is.Published {
		return cmp.Or(err, ErrUnfinished)
	}
	publishContext, mayFormat, err := m.publish(ctx, copied.String(), NodeOf(original), copyContext, onlyRead)
	if errors.Is(err, export.ErrInUse) {
		return nil
	}
	if err != nil {
		return err
	}
	d, closeDevice, err := m.attach(ctx, publishContext, os.O_RDONLY)
	if err != nil {
		return err
	}
	found, _, err := examine(d, original.String(), mayFormat)
	if err == nil && (mayFormat || found == unfinished) {
		return errors.Join(ErrUnfinished, closeDevice()) // the copy stays published, as it was during copying
	}
	return errors.Join(err, m.withdraw(closeDevice, copied.String(), NodeOf(original)))
}

// isReleased reports whether a copy is not published to the move's node. If the original is, an
// earlier move has completed the copy.
func (m Mover) isReleased(ctx context.Context, original request.VolumeID, copied *csi.Volume) (bool, error) {
	id, err := request.ParseVolumeID(copied.GetVolumeId())
	if err != nil {
		return false, err
	}
	is, err := m.Controller.Inspect(ctx, id, "", NodeOf(original))
	return !is.Published, err
}
