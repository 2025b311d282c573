// Package blocks writes to a device so that any later copy of it can be verified. Every block
// contains the number of its write, and a seed determines the whole series of writes.
//
// Each write in a stream begins only when the previous one has been acknowledged. A copy of the
// device is consistent if there is a number n such that each block contains the data that writes 1
// to n left there.
package blocks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Size is the size of a block in bytes.
const Size = 4096

const magic = 0x73706b6762617465

// A Stream is a series of writes to a device. Writes are numbered from 1.
type Stream struct {
	Seed   uint64
	Blocks int64 // of the device
}

// mix is the finalizer of MurmurHash3. Every bit of x affects about half of the result's bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Block returns the number of the block that write n overwrites.
func (s Stream) Block(n uint64) int64 {
	return int64(mix(s.Seed^mix(n)) % uint64(s.Blocks))
}

// Fill fills a block with the data of write n.
func (s Stream) Fill(n uint64, b []byte) {
	x := mix(s.Seed + n)
	for i := 24; i < Size; i += 8 {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	binary.LittleEndian.PutUint64(b, magic)
	binary.LittleEndian.PutUint64(b[8:], s.Seed)
	binary.LittleEndian.PutUint64(b[16:], n)
}

// Write makes the writes after number last until ctx ends or a write fails. It calls begin before
// each write. After the write has been acknowledged, it calls acked with the duration of the write.
// It returns the number of the last acknowledged write.
func (s Stream) Write(ctx context.Context, device io.WriterAt, last uint64, begin func(n uint64), acked func(n uint64, took time.Duration)) (uint64, error) {
	b := make([]byte, Size)
	for ctx.Err() == nil {
		n := last + 1
		s.Fill(n, b)
		begin(n)
		start := time.Now()
		if _, err := device.WriteAt(b, s.Block(n)*Size); err != nil {
			return last, fmt.Errorf("write %d, to block %d: %w", n, s.Block(n), err)
		}
		acked(n, time.Since(start))
		last = n
	}
	return last, nil
}

// ErrInconsistent means that the stream's writes cannot have produced the copy.
var ErrInconsistent = errors.New("the copy is not consistent")

// Verify reads a copy and returns the number n of the last write in it. It fails unless every block
// contains the data that writes 1 to n left there, and n is between atLeast and atMost.
func (s Stream) Verify(r io.ReaderAt, atLeast, atMost uint64) (uint64, error) {
	found, last, err := s.scan(r)
	if err != nil {
		return 0, err
	}
	if last < atLeast || last > atMost {
		return last, fmt.Errorf("%w: its last write is %d, want %d to %d", ErrInconsistent, last, atLeast, atMost)
	}
	want := make([]uint64, s.Blocks)
	for n := uint64(1); n <= last; n++ {
		want[s.Block(n)] = n
	}
	wrong, first := 0, int64(-1)
	for i := range want {
		if want[i] != found[i] {
			if wrong++; first < 0 {
				first = int64(i)
			}
		}
	}
	if wrong > 0 {
		return last, fmt.Errorf("%w: %d blocks do not contain the data of writes 1 to %d; the first is block %d, which contains write %d, want %d",
			ErrInconsistent, wrong, last, first, found[first], want[first])
	}
	return last, nil
}

// scan reads all blocks. It returns the number of the write in each block, 0 for none, and the
// largest of them.
func (s Stream) scan(r io.ReaderAt) (found []uint64, last uint64, err error) {
	const chunk = 128 // blocks
	found = make([]uint64, s.Blocks)
	data, want, zero := make([]byte, chunk*Size), make([]byte, Size), make([]byte, Size)
	for from := int64(0); from < s.Blocks; from += chunk {
		part := data[:min(chunk, s.Blocks-from)*Size]
		if _, err := r.ReadAt(part, from*Size); err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read blocks from %d: %w", from, err)
		}
		for i := from; len(part) > 0; i, part = i+1, part[Size:] {
			b := part[:Size]
			if bytes.Equal(b, zero) {
				continue
			}
			n := binary.LittleEndian.Uint64(b[16:])
			if n != 0 {
				s.Fill(n, want)
			}
			if n == 0 || s.Block(n) != i || !bytes.Equal(b, want) {
				return nil, 0, fmt.Errorf("%w: block %d contains data never written there: % x…", ErrInconsistent, i, b[:32])
			}
			found[i], last = n, max(last, n)
		}
	}
	return found, last, nil
}
