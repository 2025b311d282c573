package initiator

import (
	"encoding/binary"
	"fmt"
)

// WriteZeroes makes the target write n zero bytes at an offset, without sending them over the
// network.
func (d *Device) WriteZeroes(at, n int64) error {
	if at%d.BlockSize != 0 || n%d.BlockSize != 0 || n == 0 || n/d.BlockSize > 1<<16 {
		return fmt.Errorf("cannot write %d zeros at %d", n, at)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sqe := command(0x08, nsid)
	binary.LittleEndian.PutUint64(sqe[40:], uint64(at/d.BlockSize))
	binary.LittleEndian.PutUint32(sqe[48:], uint32(n/d.BlockSize-1))
	return finish(d.io.run(sqe, nil, nil))
}

// Deallocate deallocates n bytes at an offset. Which data can be read there afterwards depends on
// the target.
func (d *Device) Deallocate(at, n int64) error {
	const attributeDeallocate = 4
	ranges := make([]byte, 16)
	binary.LittleEndian.PutUint32(ranges[4:], uint32(n/d.BlockSize))
	binary.LittleEndian.PutUint64(ranges[8:], uint64(at/d.BlockSize))
	d.mu.Lock()
	defer d.mu.Unlock()
	sqe := command(0x09, nsid)
	binary.LittleEndian.PutUint32(sqe[44:], attributeDeallocate)
	return finish(d.io.run(sqe, ranges, nil))
}
