package blocks

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// OrderedBlocks is the number of blocks on each device that WriteInTurn writes to. The blocks are
// in different clusters, so that writes allocate clusters after each snapshot.
const OrderedBlocks = 16

const clusterBytes = 1 << 20

// PlaceOf returns the device and the offset where WriteInTurn writes number n.
func PlaceOf(n uint64, devices int) (device int, at int64) {
	return int(n % uint64(devices)), int64(n / uint64(devices) % OrderedBlocks * clusterBytes)
}

// WriteInTurn writes the numbers 1, 2, 3, … to devices in turn, each only when the previous one has
// been acknowledged, until ctx ends or a write fails. Therefore, a reader that finds a number on
// one device must find all smaller numbers on the other devices.
func WriteInTurn(ctx context.Context, devices []io.WriterAt, acked func(n uint64, took time.Duration)) error {
	block := make([]byte, Size)
	for n := uint64(1); ctx.Err() == nil; n++ {
		binary.LittleEndian.PutUint64(block, n)
		i, at := PlaceOf(n, len(devices))
		began := time.Now()
		if _, err := devices[i].WriteAt(block, at); err != nil {
			return fmt.Errorf("write %d: %w", n, err)
		}
		acked(n, time.Since(began))
	}
	return nil
}

// InOrder reports whether copies of the devices that WriteInTurn has written are consistent: if
// they contain a number, they also contain the numbers written before it, unless later numbers have
// overwritten these. The copies must be in the order of the devices.
func InOrder(copies []io.ReaderAt) (bool, error) {
	block := make([]byte, Size)
	found := map[[2]int64]uint64{}
	last := uint64(0)
	for i, c := range copies {
		for b := range int64(OrderedBlocks) {
			if _, err := c.ReadAt(block, b*clusterBytes); err != nil {
				return false, fmt.Errorf("read copy %d: %w", i, err)
			}
			n := binary.LittleEndian.Uint64(block)
			found[[2]int64{int64(i), b * clusterBytes}] = n
			last = max(last, n)
		}
	}
	cycle := uint64(len(copies) * OrderedBlocks) // after it, the same places are written to again
	for n := last; n > 0 && n+cycle > last; n-- {
		i, at := PlaceOf(n, len(copies))
		if found[[2]int64{int64(i), at}] != n {
			return false, nil
		}
	}
	return true, nil
}
