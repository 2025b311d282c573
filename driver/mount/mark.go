package mount

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// If a failure of the node or the target interrupts mkfs, the device is no longer empty but
// contains no file system. This package therefore writes a mark to the device before it runs mkfs,
// and removes the mark afterwards. A device with the mark has never been mounted, and may be
// formatted again without asking an administrator.

// formattingMark is written near the end of the device, to blocks that mkfs does not write to and
// that are free in a new file system. mkfs wipes the first and the last parts (at the end up to 128
// KiB for ext4 and xfs, 2 MiB for btrfs).
var formattingMark = append([]byte("spdkgate: formatting, not yet in use\n"), make([]byte, 16)...)

const markSector = 4096

// markOffsets returns the offsets of the marks on a device. A small device has fewer marks, or
// none.
func markOffsets(size int64) (all []int64) {
	for _, fromEnd := range []int64{256 << 10, 3<<20 + 256<<10} {
		if size >= 4*fromEnd {
			all = append(all, (size-fromEnd)&^(markSector-1))
		}
	}
	return all
}

// formattingMarked reports whether a device has a mark.
func formattingMarked(d *os.File, size int64) (bool, error) {
	for _, at := range markOffsets(size) {
		if marked, err := markedAt(d, at); err != nil || marked {
			return marked, err
		}
	}
	return false, nil
}

func markedAt(d *os.File, at int64) (bool, error) {
	b := make([]byte, len(formattingMark))
	if _, err := d.ReadAt(b, at); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return bytes.Equal(b, formattingMark), nil
}

// markFormatting sets or removes the marks, and syncs the device. Because marks are set only on an
// empty device, overwriting them with zeros restores the device's contents.
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
	sector := make([]byte, markSector)
	if set {
		copy(sector, formattingMark)
	}
	for _, at := range markOffsets(size) {
		marked, err := markedAt(d, at)
		if err != nil {
			return err
		}
		if marked == set {
			continue
		}
		if _, err := d.WriteAt(sector, at); err != nil {
			return fmt.Errorf("write to %s: %w", device, err)
		}
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write to %s: %w", device, err)
	}
	return nil
}

// neverMounted reports whether an ext4 file system has never been mounted. The superblock records
// the time of the last mount and the number of mounts, which mkfs sets to 0.
func neverMounted(start []byte) bool {
	const superblock, lastMount, mounts = 1024, 44, 52
	if len(start) < superblock+1024 {
		return false
	}
	sb := start[superblock:]
	return binary.LittleEndian.Uint32(sb[lastMount:]) == 0 && binary.LittleEndian.Uint16(sb[mounts:]) == 0
}

// unfinishedXFS recognizes the superblock of an interrupted mkfs.xfs. mkfs clears the field
// sb_inprogress as its last step, and kernels do not mount a file system while this field is set.
func unfinishedXFS(start []byte) bool {
	const inProgress = 126
	return len(start) > inProgress && bytes.HasPrefix(start, []byte("XFSB")) && start[inProgress] == 1
}
