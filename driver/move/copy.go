package move

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

const (
	chunkBytes = 1 << 20
	// copiers is the number of chunks in flight. This number keeps a network busy, and the target
	// responsive for other clients.
	copiers = 8
)

// A device is an open block device, or a file in tests. Its reads and writes bypass this machine's
// page cache.
type device struct {
	*os.File
	size int64
	// allocated lists the clusters that are read. All other clusters are assumed to be zero. If
	// allocated is nil, the whole device is read.
	allocated *inventory.Allocation
	read      atomic.Int64 // bytes
}

func openDevice(path string, flag int) (*device, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode()&os.ModeDevice != 0 {
		flag |= unix.O_DIRECT | unix.O_EXCL // exclusive: the device must not be mounted on this machine
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &device{File: f, size: size}, nil
}

// buffer returns page-aligned memory, which direct I/O requires. free unmaps it.
func buffer() (b []byte, free func(), err error) {
	b, err = unix.Mmap(-1, 0, chunkBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("allocate a buffer: %w", err)
	}
	return b, func() { _ = unix.Munmap(b) }, nil
}

// readChunk reads the chunk that begins at offset, but not beyond size.
func (d *device) readChunk(b []byte, offset, size int64) ([]byte, error) {
	b = b[:min(int64(len(b)), size-offset)]
	if d.allocated != nil && !d.allocated.Has(offset, int64(len(b))) {
		clear(b)
		return b, nil
	}
	d.read.Add(int64(len(b)))
	if _, err := d.ReadAt(b, offset); err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", d.Name(), offset, err)
	}
	return b, nil
}

// differing writes to the copy only the chunks of the original that differ. This lets an
// interrupted copy continue where it stopped, and leaves clusters of thin volumes unallocated if
// they have never been written to. The first markBytes of the copy remain unchanged.
func (m *moving) differing(ctx context.Context) error {
	m.zeros = make([]bool, (m.from.size+chunkBytes-1)/chunkBytes)
	if err := m.each(ctx, m.copyChunk); err != nil {
		return err
	}
	if err := m.to.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", m.to.Name(), err)
	}
	return nil
}

// clearStale writes zeros where the copy should be zero but is not: in chunks that are zero in the
// original, and beyond the original's end. If a write allocates a cluster, the rest of that cluster
// may contain data of a deleted volume.
func (m *moving) clearStale(ctx context.Context) error {
	written := m.written.Load()
	err := m.each(ctx, func(zeros, to []byte, offset int64) error {
		if !m.zeros[offset/chunkBytes] {
			return nil
		}
		has, err := m.to.readChunk(to, offset, m.from.size)
		if err != nil {
			return err
		}
		if offset == 0 {
			has, offset = has[markBytes:], markBytes
		}
		if isZero(has) {
			return nil
		}
		clear(zeros[:len(has)])
		return m.write(zeros[:len(has)], offset)
	})
	if err == nil {
		err = m.beyond(ctx, func(has []byte, offset int64) error {
			clear(has)
			return m.write(has, offset)
		})
	}
	if err == nil && m.written.Load() > written {
		if err = m.to.Sync(); err != nil {
			err = fmt.Errorf("flush %s: %w", m.to.Name(), err)
		}
	}
	return err
}

// beyond reads the copy beyond the original's end, and calls do for each chunk that is not zero.
func (m *moving) beyond(ctx context.Context, do func(has []byte, offset int64) error) error {
	b, free, err := buffer()
	if err != nil {
		return err
	}
	defer free()
	for offset := m.from.size; offset < m.to.size; offset += chunkBytes {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		has, err := m.to.readChunk(b, offset, m.to.size)
		if err != nil {
			return err
		}
		if isZero(has) {
			continue
		}
		if err := do(has, offset); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for each chunk that is not skipped. Several calls run concurrently, each with two
// buffers.
func (m *moving) each(ctx context.Context, do func(from, to []byte, offset int64) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range copiers {
		g.Go(func() error {
			from, freeFrom, err := buffer()
			if err != nil {
				return err
			}
			defer freeFrom()
			to, freeTo, err := buffer()
			if err != nil {
				return err
			}
			defer freeTo()
			for {
				offset := next.Add(chunkBytes) - chunkBytes
				if offset >= m.from.size || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if m.skips(offset) {
					m.done.Add(min(chunkBytes, m.from.size-offset))
					continue
				}
				if err := do(from, to, offset); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// skips reports whether the chunk that begins at offset is neither copied nor verified.
func (m *moving) skips(offset int64) bool { return m.only != nil && !m.only[offset/chunkBytes] }

func (m *moving) copyChunk(from, to []byte, offset int64) error {
	want, err := m.from.readChunk(from, offset, m.from.size)
	if err != nil {
		return err
	}
	has, err := m.to.readChunk(to, offset, m.from.size)
	if err != nil {
		return err
	}
	chunk := offset / chunkBytes
	if offset == 0 {
		want, has, offset = want[markBytes:], has[markBytes:], markBytes
	}
	m.zeros[chunk] = isZero(want)
	if !bytes.Equal(want, has) {
		if err := m.write(want, offset); err != nil {
			return err
		}
	}
	m.done.Add(int64(len(want)))
	return nil
}

func (m *moving) write(b []byte, offset int64) error {
	if _, err := m.to.WriteAt(b, offset); err != nil {
		return fmt.Errorf("write %s at %d: %w", m.to.Name(), offset, err)
	}
	m.written.Add(int64(len(b)))
	return nil
}

// verify reads both devices again and compares them. It omits the mark, skipped chunks, and
// clusters that are known to be unallocated. Beyond the original's end, the copy must be zero.
// verify returns the SHA-256 hash of the original, or "" if it skipped chunks.
func (m *moving) verify(ctx context.Context) (sum string, err error) {
	from, free, err := buffer()
	if err != nil {
		return "", err
	}
	defer free()
	to, free, err := buffer()
	if err != nil {
		return "", err
	}
	defer free()
	h := sha256.New()
	for offset := int64(0); offset < m.from.size; offset += chunkBytes {
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		if m.skips(offset) {
			m.done.Add(min(chunkBytes, m.from.size-offset))
			continue
		}
		var want, has []byte
		var g errgroup.Group
		g.Go(func() (err error) { want, err = m.from.readChunk(from, offset, m.from.size); return err })
		g.Go(func() (err error) { has, err = m.to.readChunk(to, offset, m.from.size); return err })
		if err := g.Wait(); err != nil {
			return "", err
		}
		h.Write(want)
		m.data = m.data || !isZero(want)
		ours, theirs := want, has
		if offset == 0 && m.marked {
			ours, theirs = want[markBytes:], has[markBytes:]
		}
		if !bytes.Equal(ours, theirs) {
			return "", fmt.Errorf("%w: bytes %d to %d differ", ErrDiffers, offset, offset+int64(len(want)))
		}
		m.done.Add(int64(len(want)))
	}
	if err := m.beyond(ctx, func(has []byte, offset int64) error {
		return fmt.Errorf("%w: bytes %d to %d, which the original does not have, are not zero", ErrDiffers, offset, offset+int64(len(has)))
	}); err != nil {
		return "", err
	}
	if m.only != nil {
		return "", nil
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// first reads the first block of the device.
func (d *device) first() ([]byte, error) {
	b, free, err := buffer()
	if err != nil {
		return nil, err
	}
	defer free()
	b, err = d.readChunk(b, 0, markBytes)
	return bytes.Clone(b), err
}

// setFirst writes the first block of the device, and waits until the write is durable.
func (d *device) setFirst(block []byte) error {
	b, free, err := buffer()
	if err != nil {
		return err
	}
	defer free()
	copy(b, block)
	if _, err := d.WriteAt(b[:markBytes], 0); err != nil {
		return fmt.Errorf("write %s at 0: %w", d.Name(), err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", d.Name(), err)
	}
	return nil
}
