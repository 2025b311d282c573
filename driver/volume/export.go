package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spdkgate/spdkgate/driver/export"
)

// An Exported is a volume with an admitted host.
type Exported struct {
	Volume
	export.Admission
}

// A Precondition is a check that must succeed before a volume is exported. It must not change the
// target.
type Precondition func(context.Context) error

// Export makes a volume reachable for one host if all conditions succeed; see
// [export.Service.Admit]. Export checks the conditions concurrently.
func (s *Service) Export(ctx context.Context, id string, h export.Host, conditions ...Precondition) (Exported, error) {
	return s.export(ctx, id, h, s.exports.Admit, conditions)
}

// Share is like Export, but admits an additional host to a shared volume; see
// [export.Service.Share].
func (s *Service) Share(ctx context.Context, id string, h export.Host, conditions ...Precondition) (Exported, error) {
	return s.export(ctx, id, h, s.exports.Share, conditions)
}

type admitFunc func(ctx context.Context, id string, h export.Host, mayExport func(context.Context) error) (export.Admission, error)

func (s *Service) export(ctx context.Context, id string, h export.Host, admit admitFunc, conditions []Precondition) (Exported, error) {
	var v Volume
	var refused error
	admission, err := admit(ctx, id, h, func(ctx context.Context) error {
		failures := make([]error, len(conditions))
		var checking sync.WaitGroup
		for i, check := range conditions {
			checking.Go(func() { failures[i] = check(ctx) })
		}
		v, refused = s.GetVolume(ctx, id)
		checking.Wait()
		if failed := cmp.Or(failures...); refused == nil && failed != nil {
			refused = fmt.Errorf("export %s: %w", v, failed)
		}
		return refused
	})
	switch {
	case refused != nil && errors.Is(err, refused):
		return Exported{}, refused
	case err != nil && v.UUID == "": // the subsystem could not be read
		return Exported{}, fmt.Errorf("target %s: export volume %s: %w", s.Name, id, err)
	case err != nil:
		if _, gone := s.GetVolume(ctx, id); errors.Is(gone, ErrNotFound) { // SPDK's error does not show that the volume is gone
			return Exported{}, gone
		}
		return Exported{}, fmt.Errorf("target %s: export %s: %w", s.Name, v, err)
	}
	return Exported{v, admission}, nil
}

// Unexport ends the export of a volume to one host, or to all hosts if h is nil. The target closes
// the connections of these hosts. Unexport succeeds if there is no export, even if the volume does
// not exist.
func (s *Service) Unexport(ctx context.Context, id string, h *export.Host) error {
	if err := s.exports.Withdraw(ctx, id, h); err != nil {
		return fmt.Errorf("target %s: unexport volume %s: %w", s.Name, id, err)
	}
	return nil
}

// removeExport removes the export of a volume that is about to be deleted. It fails if the export
// admits a host.
func (s *Service) removeExport(ctx context.Context, id string) error {
	if err := s.exports.RemoveUnused(ctx, id); err != nil {
		return fmt.Errorf("target %s: delete volume %s: %w", s.Name, id, err)
	}
	return nil
}

// Hosts returns, for each volume, the NVMe host NQNs or iSCSI initiator names that the volume is
// exported to.
func (s *Service) Hosts(ctx context.Context, ids []string) ([][]string, error) {
	hosts, err := s.exports.Hosts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("target %s: list the hosts that volumes are exported to: %w", s.Name, err)
	}
	return hosts, nil
}

// Fence removes a host from all exports of the target, and prevents new exports to the host; see
// [export.Service.Fence].
func (s *Service) Fence(ctx context.Context, h export.Host, node string, dryRun bool) ([]export.Fencing, error) {
	return s.exports.Fence(ctx, h, node, dryRun)
}

// Unfence allows a host to use exports of the target again; see [export.Service.Unfence].
func (s *Service) Unfence(ctx context.Context, h export.Host, dryRun bool) (was bool, err error) {
	return s.exports.Unfence(ctx, h, dryRun)
}
