package move

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

// allocations determines which clusters of the original and the copy are allocated. If the
// allocated clusters of a volume are unknown, the whole volume is read.
type allocations struct {
	m        Mover
	original request.VolumeID
	copied   string

	base      string                // if set, before lists the clusters that changed since this snapshot
	before    *inventory.Allocation // allocated clusters of the original before it was copied
	uncounted bool                  // SPDK does not count the clusters of one of the volumes
}

func (a *allocations) ofOriginal(ctx context.Context, size int64) *inventory.Allocation {
	a.before = a.ask(ctx, a.original.String(), size)
	return a.before
}

func (a *allocations) ofCopy(ctx context.Context, size int64) *inventory.Allocation {
	return a.ask(ctx, a.copied, size)
}

// ask returns the allocated clusters of a volume, or nil if they are unknown. size is the size of
// the attached device.
func (a *allocations) ask(ctx context.Context, volume string, size int64) *inventory.Allocation {
	found, err := a.get(ctx, volume, "", size)
	if err != nil {
		a.m.warn("the whole volume is read, because its allocated clusters are unknown", "volume", volume, "error", err)
		return nil
	}
	if !found.Counted && !a.uncounted {
		a.uncounted = true
		a.m.warn("both volumes are verified completely, because the target does not report the number of clusters of one of them", "volume", volume)
	}
	return found
}

// get returns the allocated clusters of a volume or, if base is not empty, the clusters that may
// differ from the snapshot base.
func (a *allocations) get(ctx context.Context, volume, base string, size int64) (*inventory.Allocation, error) {
	id, err := request.ParseVolumeID(volume)
	if err != nil {
		return nil, err
	}
	found, err := a.m.Controller.Allocated(ctx, id, base)
	if err == nil && found.SizeBytes != size {
		err = fmt.Errorf("the volume has %d bytes on its target, but %d on this machine", found.SizeBytes, size)
	}
	return &found, err
}

// proven reports whether verification can also skip the clusters that are not listed.
func (a *allocations) proven() bool { return !a.uncounted }

// unchanged returns an error if clusters of the original have been allocated or freed since
// ofOriginal was called, or if the size of the original has changed since it was copied.
func (a *allocations) unchanged(ctx context.Context, size int64) error {
	if a.before == nil {
		var now inventory.Inspected
		err := a.m.retry(ctx, func() (err error) {
			now, err = a.m.Controller.Inspect(ctx, a.original, "")
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("read the original's size again: %w", err)
		case now.SizeBytes != size:
			return fmt.Errorf("%w: it now has %d bytes, but %d were copied", ErrChanged, now.SizeBytes, size)
		}
		return nil
	}
	var after inventory.Allocation
	err := a.m.retry(ctx, func() (err error) {
		after, err = a.m.Controller.Allocated(ctx, a.original, a.base)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the allocated clusters again: %w", err)
	case after.SizeBytes != size, after.ClusterSize != a.before.ClusterSize, !bytes.Equal(after.Bitmap, a.before.Bitmap):
		return ErrChanged
	}
	return nil
}

// The last query about the original is retried. Otherwise, the move must be repeated, and reads
// both volumes again.
const (
	tries = 4
	pause = 5 * time.Second
)

// retry calls do until it succeeds or has failed a few times, and returns the last error.
func (m Mover) retry(ctx context.Context, do func() error) (err error) {
	for try := range tries {
		if try > 0 {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(cmp.Or(m.Pause, pause)):
			}
		}
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}
