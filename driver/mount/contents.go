package mount

import (
	"context"
	"fmt"
	"os"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Contents describes what a device contains, without changing the device. It returns the name of
// the device's signature (empty if it has none), and the offset of the first data (-1 if the device
// is empty). marked means that [Mounter.MarkFormatting] has marked the device. Contents fails if
// the device cannot be read or is in use, or, if write is true, is write-protected.
func (m *Mounter) Contents(ctx context.Context, device string, write bool) (signature string, dataAt int64, marked bool, err error) {
	number, err := blockRdev(device)
	if err != nil {
		return "", 0, false, err
	}
	type answer struct {
		scanned
		signature string
	}
	a, err := operation.Run(ctx, &m.operations, []string{"device " + number}, func(ctx context.Context, step *operation.Step) (answer, error) {
		step.Doing("reading %s", device)
		found, signature, err := m.read(ctx, device, write)
		return answer{found, signature}, err
	})
	if err != nil {
		return "", 0, false, fmt.Errorf("read %s: %w", device, err)
	}
	return a.signature, a.dataAt, a.marked, nil
}

// MarkFormatting sets or removes a mark near the end of an empty device. The mark means that a
// program is formatting the device, so the device has never been used, even if the program is
// interrupted. See mark.go for details.
func (m *Mounter) MarkFormatting(device string, set bool) error { return markFormatting(device, set) }

// read determines what a device contains, by reading the device and running blkid.
func (m *Mounter) read(ctx context.Context, device string, write bool) (scanned, string, error) {
	d, err := openDevice(device, os.O_RDONLY)
	if err != nil {
		return scanned{}, "", err
	}
	defer d.Close()
	if write {
		if err := checkWritable(d); err != nil {
			return scanned{}, "", err
		}
	}
	found, err := scan(ctx, d)
	if err != nil {
		return scanned{}, "", err
	}
	signature, err := m.blkid(device)
	return found, signature, err
}
