package mount

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// If a mkfs is interrupted (node or target lost), the device is neither empty nor a file system. So
// that no administrator has to decide what to do, this package writes a mark to the device before
// mkfs and removes it afterwards: a device with the mark was never mounted, and may be formatted again.

// formattingMark is at a place that mkfs does not write to: not in the first MiB or the last 128 KiB,
// which mkfs wipes, but in blocks near the end, which are free in a new file system.
var formattingMark = append([]byte("spdkgate: formatting, not yet in use\n"), make([]byte, 16)...)

const (
	markFromEnd = 256 << 10
	markSector  = 4096
)

// markOffset returns the offset of the mark, and false if the device is too small to have one.
func markOffset(size int64) (int64, bool) {
	return (size - markFromEnd) &^ (markSector - 1), size >= 4*markFromEnd
}

func formattingMarked(d *os.File, size int64) (bool, error) {
	at, ok := markOffset(size)
	if !ok {
		return false, nil
	}
	b := make([]byte, len(formattingMark))
	if _, err := d.ReadAt(b, at); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return bytes.Equal(b, formattingMark), nil
}

// markFormatting sets or removes the mark, and syncs the device. The mark is set only on an empty
// device, so removing it, if it still exists, leaves zeroes.
func markFormatting(device string, set bool) (err error) {
	d, err := openDevice(device, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	size, err := d.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	at, ok := markOffset(size)
	marked, err := formattingMarked(d, size)
	if err != nil || !ok || marked == set {
		return err
	}
	sector := make([]byte, markSector)
	if set {
		copy(sector, formattingMark)
	}
	if _, err := d.WriteAt(sector, at); err != nil {
		return fmt.Errorf("write to %s: %w", device, err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write to %s: %w", device, err)
	}
	return nil
}

// neverMounted tells whether an ext4 was never mounted: the superblock has the time of the last mount
// and the number of mounts, which mkfs sets to 0.
func neverMounted(start []byte) bool {
	const superblock, lastMount, mounts = 1024, 44, 52
	if len(start) < superblock+1024 {
		return false
	}
	sb := start[superblock:]
	return binary.LittleEndian.Uint32(sb[lastMount:]) == 0 && binary.LittleEndian.Uint16(sb[mounts:]) == 0
}

// unfinishedXFS recognises the superblock of an interrupted mkfs.xfs. mkfs resets the field
// sb_inprogress at the very end, and kernels do not mount a file system in which it is set.
func unfinishedXFS(start []byte) bool {
	const inProgress = 126
	return len(start) > inProgress && bytes.HasPrefix(start, []byte("XFSB")) && start[inProgress] == 1
}
