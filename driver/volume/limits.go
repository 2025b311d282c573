package volume

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Limit sets the I/O limits of a volume, even while hosts are using the volume, and reads them
// back. If the volume already has these limits, Limit makes no calls. SPDK stores limits only in
// memory; after a restart, the target's saved configuration restores them.
func (s *Service) Limit(ctx context.Context, v Volume, l class.Limits) error {
	if hasLimits(v.Limits, l) {
		return nil
	}
	failed := s.rpc.BdevSetQoSLimit(ctx, spdkrpc.BdevSetQoSLimitParams{
		Name: v.UUID, RWIOsPerSec: l.IOPS, RWMbytesPerSec: l.MiBPerSecond, RMbytesPerSec: l.ReadMiBPerSecond, WMbytesPerSec: l.WriteMiBPerSecond,
	})
	if failed != nil && !readback.Clarifies(failed) {
		return fmt.Errorf("target %s: limit the I/O of %s: %w", s.Name, v, failed)
	}
	now, err := s.Get(ctx, v.UUID)
	switch {
	case err != nil:
		return err
	case hasLimits(now.Limits, l):
		return nil
	case failed == nil:
		return fmt.Errorf("target %s: %w: the limits of %s were set, but differ now: try again", s.Name, ErrBusy, v)
	case readback.Refused(failed) && now.Limits != spdkrpc.BdevRateLimits{}:
		// On SPDK v25.09 and later, opening the bdev to change its limits restarts the limiter
		// (observed).
		return fmt.Errorf("target %s: %w: SPDK cannot change the existing limits of %s while no host uses the volume. The new limits take effect when it is attached: %w", s.Name, ErrBusy, v, failed)
	}
	return fmt.Errorf("target %s: limit the I/O of %s: %w", s.Name, v, failed)
}

// hasLimits reports whether the current limits equal all limits that l sets.
func hasLimits(now spdkrpc.BdevRateLimits, l class.Limits) bool {
	for _, f := range []struct {
		now  uint64
		want *uint64
	}{{now.RWIOsPerSec, l.IOPS}, {now.RWMbytesPerSec, l.MiBPerSecond}, {now.RMbytesPerSec, l.ReadMiBPerSecond}, {now.WMbytesPerSec, l.WriteMiBPerSecond}} {
		if f.want != nil && *f.want != f.now {
			return false
		}
	}
	return true
}
