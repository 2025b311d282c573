package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An IOStat contains the I/O statistics of a volume since the start of its target or the creation
// of the volume.
type IOStat struct {
	Reads, Writes, Unmaps                  uint64
	ReadBytes, WrittenBytes, UnmappedBytes uint64
	// ReadTime and WriteTime are the sums of the latencies of all reads and writes.
	ReadTime, WriteTime time.Duration
}

// IOStat reads the I/O statistics of one volume by its name. A query without a name would block
// SPDK's reactor while SPDK collects the statistics of all bdevs. ErrNotFound means only that the
// volume has no bdev.
func (s *Service) IOStat(ctx context.Context, id string) (IOStat, error) {
	all, err := s.rpc.BdevGetIOStat(ctx, spdkrpc.BdevGetIOStatParams{Names: []string{id}})
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice):
		return IOStat{}, fmt.Errorf("target %s: volume %q: %w", s.Name, id, ErrNotFound)
	case err != nil:
		return IOStat{}, fmt.Errorf("target %s: read the I/O statistics of volume %q: %w", s.Name, id, err)
	case len(all.Bdevs) != 1:
		return IOStat{}, fmt.Errorf("target %s: the target returned the I/O statistics of %d bdevs instead of one", s.Name, len(all.Bdevs))
	}
	b := all.Bdevs[0]
	since := func(ticks uint64) time.Duration {
		return time.Duration(float64(ticks) / float64(max(1, all.TickRate)) * float64(time.Second))
	}
	return IOStat{
		Reads: b.NumReadOps, Writes: b.NumWriteOps, Unmaps: b.NumUnmapOps,
		ReadBytes: b.BytesRead, WrittenBytes: b.BytesWritten, UnmappedBytes: b.BytesUnmapped,
		ReadTime: since(b.ReadLatencyTicks), WriteTime: since(b.WriteLatencyTicks),
	}, nil
}
