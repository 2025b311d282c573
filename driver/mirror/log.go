package mirror

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// A logFormat determines which marks are set in a log before the kernel uses the log.
type logFormat int

const (
	keepMarks  logFormat = iota // keep the existing marks; if the log is invalid, set all marks
	clearMarks                  // set no marks
	setMarks                    // set all marks
)

// The header of the disk format of dm-log: magic, version and number of regions. In the bitmap
// after the header, a set bit means that the region has no mark.
const (
	logMagic   = 0x4D695272
	logVersion = 2
)

// formatLog writes a log to a replica. No active table may use the log, unless the mirror is
// suspended.
func (m *Mirror) formatLog(ctx context.Context, id replica.ID, format logFormat) error {
	if format == keepMarks {
		return nil
	}
	log := logOf(m.volume.Size, format)
	if _, err := m.number(ctx, id); err != nil { // verify that the device is the replica
		return err
	}
	d, err := m.openReplica(ctx, id)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := d.WriteAt(log, logOffset); err != nil {
		return fmt.Errorf("write the log to replica %d: %w", id, err)
	}
	return nil
}

// logOf returns the log of a volume with this size in bytes, in whole blocks.
func logOf(size int64, format logFormat) []byte {
	regions := (size + RegionBytes - 1) / RegionBytes
	bytes := (logHeadBytes + (regions+7)/8 + superblockBytes - 1) / superblockBytes * superblockBytes
	log := make([]byte, bytes)
	binary.LittleEndian.PutUint32(log, logMagic)
	binary.LittleEndian.PutUint32(log[4:], logVersion)
	binary.LittleEndian.PutUint64(log[8:], uint64(regions))
	if format == clearMarks {
		for i := range regions {
			log[logHeadBytes+i/8] |= 1 << (i % 8)
		}
	}
	return log
}
