package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// A Table is a snapshot of this node's mounts.
type Table struct {
	mounter *Mounter
	all     []Point
}

// Table reads the list of mounts. It does not access any mounted file system.
func (m *Mounter) Table(ctx context.Context) (Table, error) {
	all, err := operation.Share(ctx, &m.operations, "mount table", m.points)
	return Table{mounter: m, all: all}, err
}

// At returns the mount at a path, as [Mounter.At] does.
func (t Table) At(path string) (Point, error) {
	path, err := canonical(path)
	if err != nil {
		return Point{}, err
	}
	for _, p := range slices.Backward(t.all) { // the last mount hides the others
		if p.Path == path {
			return t.mounter.complete(p)
		}
	}
	return Point{}, fmt.Errorf("%s: %w", path, ErrNotMounted)
}

// Paths lists the paths of all mounts.
func (t Table) Paths() []string {
	paths := make([]string, len(t.all))
	for i, p := range t.all {
		paths[i] = p.Path
	}
	return paths
}

// A Fault is a reason, found in the kernel's mount table or sysfs, why a mount is unusable.
type Fault string

// These are the faults. NoFault does not mean that the file system is usable; see [Mounter.Probe]
// and [Mounter.Check].
const (
	NoFault            Fault = ""
	DeviceGone         Fault = "its device was removed"
	ShutDown           Fault = "the kernel shut it down after errors"
	ReadOnlyAfterError Fault = "the kernel made it read-only after errors"
)

// Fault returns the reason why the mount is unusable, or NoFault. Older kernels report fewer
// faults.
func (p Point) Fault() Fault {
	switch {
	case p.Stale:
		return DeviceGone
	case slices.Contains(p.superOpts, "shutdown"):
		return ShutDown
	case slices.Contains(p.superOpts, "emergency_ro"), slices.Contains(p.superOpts, "ro") && !slices.Contains(p.options, "ro"):
		return ReadOnlyAfterError
	}
	return NoFault
}

// Probe queries the statistics of a mounted file system and opens its root directory. This fails
// after some errors that [Point.Fault] does not report. Probe writes nothing, and reads from the
// device only data that is not in memory. Only one probe of a path runs at a time. If that probe
// hangs, each caller fails when its context ends.
func (m *Mounter) Probe(ctx context.Context, p Point) error {
	_, err := operation.Share(ctx, &m.operations, "probe of "+p.Path, func() (struct{}, error) { return struct{}{}, p.probe() })
	if err != nil {
		return fmt.Errorf("probe %s: %w", p.Path, err)
	}
	return nil
}

func (p Point) probe() error {
	if fault := p.Fault(); fault != NoFault {
		return fmt.Errorf("%w: %s", ErrBroken, fault)
	}
	if p.Block {
		return nil
	}
	var st unix.Statfs_t
	err := unix.Statfs(p.Path, &st)
	if err == nil || errors.Is(err, unix.EINTR) {
		var d *os.File
		if d, err = os.Open(p.Path); err == nil {
			err = d.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}
