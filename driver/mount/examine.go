package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// contents describes what a device contains. The zero value describes an empty device.
type contents struct {
	filesystem string // one of mkfs.Types
	other      string // a description of anything else
	// interrupted means that an mkfs run of this package did not finish, so the unfinished file
	// system has never been mounted.
	interrupted bool
}

// examine determines what a device contains, by reading it and by running blkid, which recognizes
// signatures. Neither is sufficient on its own: blkid reports an unreadable device as empty, and
// does not recognize a database on a raw device. examine fails if the device cannot be read, or if
// it must be written to but is write-protected.
func (m *Mounter) examine(ctx context.Context, s *Stage) (contents, error) {
	found, signature, err := m.read(ctx, s.Device, !s.ReadOnly)
	if err != nil {
		return contents{}, err
	}
	return classify(found, signature, s.Unused), nil
}

// classify combines the results of scan and blkid. unused means that the device has never been
// mounted, and contains random data until it has a file system. On such a device, a signature of
// anything else is a coincidence.
func classify(found scanned, signature string, unused bool) contents {
	switch {
	case signature == xfs && unfinishedXFS(found.start),
		signature == ext4 && (found.marked || unused) && neverMounted(found.start),
		signature == "" && (found.marked || unused):
		return contents{interrupted: true}
	case supported(signature):
		return contents{filesystem: signature}
	case unused:
		return contents{interrupted: true}
	case signature != "":
		return contents{other: signature}
	case found.dataAt >= 0:
		return contents{other: fmt.Sprintf("data at offset %d that is not a known file system", found.dataAt)}
	}
	return contents{}
}

// openDevice opens a block device exclusively.
func openDevice(device string, mode int) (*os.File, error) {
	d, err := os.OpenFile(device, mode|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: %s is held by another mount or device: find it with lsblk", ErrBusy, device)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return d, nil
}

// isProtected reports whether a device is write-protected.
func isProtected(d *os.File) (bool, error) {
	value, err := unix.IoctlGetInt(int(d.Fd()), unix.BLKROGET)
	if err != nil {
		return false, fmt.Errorf("read whether %s is write-protected: %w", d.Name(), err)
	}
	return value != 0, nil
}

// checkWritable fails if a device is write-protected, because mount(8) would mount it read-only
// without an error.
func checkWritable(d *os.File) error {
	protected, err := isProtected(d)
	if err != nil {
		return err
	}
	if protected {
		return fmt.Errorf("%w: %s is write-protected: mount the volume read-only, or export it for writing", ErrConflict, d.Name())
	}
	return nil
}

// A scanned is the result of reading a device.
type scanned struct {
	start  []byte // first bytes of the device
	dataAt int64  // offset of the first data; -1 if none was found
	marked bool   // the device has the mark of an unfinished mkfs
}

// scan reads selected parts of a device. Every known kind of contents has data in at least one of
// these parts.
func scan(ctx context.Context, d *os.File) (scanned, error) {
	size, err := d.Seek(0, io.SeekEnd)
	if err != nil {
		return scanned{}, fmt.Errorf("%w: size of %s: %w", ErrUnreadable, d.Name(), err)
	}
	if size == 0 {
		return scanned{}, fmt.Errorf("%w: %s has size 0: check whether the target still has the volume", ErrUnreadable, d.Name())
	}
	result := scanned{dataAt: -1}
	buf, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for _, p := range scannedExtents(size) {
		for off := p.from; off < p.to; {
			if err := ctx.Err(); err != nil {
				return scanned{}, err
			}
			chunk := buf[:min(int64(len(buf)), p.to-off)]
			if n, err := d.ReadAt(chunk, off); n < len(chunk) {
				return scanned{}, fmt.Errorf("%w: %s at offset %d: %w: its contents are unknown, so it is left unchanged", ErrUnreadable, d.Name(), off+int64(n), err)
			}
			if off == 0 {
				result.start = slices.Clone(chunk[:min(len(chunk), 4096)])
			}
			if result.dataAt < 0 && !bytes.Equal(chunk, zeros[:len(chunk)]) {
				result.dataAt = off + int64(slices.IndexFunc(chunk, func(b byte) bool { return b != 0 }))
			}
			off += int64(len(chunk))
		}
	}
	result.marked, err = formattingMarked(d, size)
	return result, err
}

// An extent is a range of bytes on a device.
type extent struct{ from, to int64 }

// scannedExtents returns the first 4 MiB and the last 1 MiB, 64 KiB at ext4's first backup
// superblocks, and 64 KiB at 16 evenly spaced positions.
func scannedExtents(size int64) []extent {
	const kib, mib = int64(1 << 10), int64(1 << 20)
	all := []extent{{0, 4 * mib}, {size - mib, size}, {8 * mib, 8*mib + 64*kib}, {128 * mib, 128*mib + 64*kib}}
	for i := range int64(16) {
		at := size / 16 * i &^ (64*kib - 1)
		all = append(all, extent{at, at + 64*kib})
	}
	for i, p := range all {
		all[i] = extent{max(p.from, 0), min(p.to, size)}
	}
	return slices.DeleteFunc(all, func(p extent) bool { return p.from >= p.to })
}

// blkid returns the name of the file system, partition table or other signature on a device, or an
// empty string if it finds none.
func (m *Mounter) blkid(device string) (string, error) {
	const nothing, several = 2, 8
	out, code, err := m.runTool("blkid", "-p", "-o", "export", device)
	switch {
	case err != nil:
		return "", err
	case code == nothing:
		return "", nil
	case code == several:
		return "several signatures at once", nil
	case code != 0:
		return "", fmt.Errorf("%w: blkid: exit code %d: %s", ErrUnreadable, code, out)
	}
	values := make(map[string]string)
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	switch {
	case values["PTTYPE"] != "":
		return "a partition table (" + values["PTTYPE"] + ")", nil
	case values["TYPE"] != "":
		return values["TYPE"], nil
	}
	return "a signature without a name", nil
}
