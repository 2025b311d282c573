package volume

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/export"
)

// An Exported volume is one that a host was just admitted to.
type Exported struct {
	Volume
	// Multipath says whether the host may connect as its Multipath.
	Multipath bool
}

// Export makes a volume reachable for one host; see [export.Service.Admit].
func (s *Service) Export(ctx context.Context, id string, h export.Host) (Exported, error) {
	v, err := s.GetVolume(ctx, id)
	if err != nil {
		return Exported{}, err
	}
	multipath, err := s.exports.Admit(ctx, id, h)
	if err != nil {
		return Exported{}, fmt.Errorf("target %s: export %s: %w", s.Name, v, err)
	}
	return Exported{v, multipath}, nil
}

// Unexport ends what Export began, for one host, or for all if h is nil. Its connections are cut. It succeeds when there
// is nothing to end, even if the volume is gone.
func (s *Service) Unexport(ctx context.Context, id string, h *export.Host) error {
	if err := s.exports.Withdraw(ctx, id, h); err != nil {
		return fmt.Errorf("target %s: unexport volume %s: %w", s.Name, id, err)
	}
	return nil
}

// removeExport removes what is left of a volume's export before the volume is deleted.
func (s *Service) removeExport(ctx context.Context, id string) error {
	if err := s.exports.RemoveUnused(ctx, id); err != nil {
		return fmt.Errorf("target %s: delete volume %s: %w", s.Name, id, err)
	}
	return nil
}
