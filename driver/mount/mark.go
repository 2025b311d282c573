package mount

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// A mkfs that was cut off (node lost, target gone) leaves a device that is neither empty nor a file
// system. So that a person need not decide about it, a mark is written to the device before mkfs
// and removed afterwards: what has the mark was never mounted, and may be formatted again.

// formattingMark lies where no mkfs writes: not in the first MiB, nor the last 128 KiB, which
// mkfs wipes, but in what will be the last, free blocks of the file system.
var formattingMark = append([]byte("spdkgate: formatting, not yet in use\n"), make([]byte, 16)...)

const (
	markFromEnd = 256 << 10
	markSector  = 4096
)

// markOffset is where the mark belongs; false for devices too small to have one.
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

// markFormatting sets or removes the mark, and makes sure that it has reached the device. It is
// only set where nothing was, so that removing it, where it still is, leaves nothing behind.
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

// neverMounted reads from an ext4 superblock whether the file system was ever used: the kernel
// keeps the time of the last mount, and their number, which mkfs sets to 0.
func neverMounted(start []byte) bool {
	const superblock, lastMount, mounts = 1024, 44, 52
	if len(start) < superblock+1024 {
		return false
	}
	sb := start[superblock:]
	return binary.LittleEndian.Uint32(sb[lastMount:]) == 0 && binary.LittleEndian.Uint16(sb[mounts:]) == 0
}

// unfinishedXFS recognises the superblock that mkfs.xfs leaves when it is interrupted. Its field
// sb_inprogress is reset at the very end, and no kernel mounts a file system that has it set.
func unfinishedXFS(start []byte) bool {
	const inProgress = 126
	return len(start) > inProgress && bytes.HasPrefix(start, []byte("XFSB")) && start[inProgress] == 1
}
