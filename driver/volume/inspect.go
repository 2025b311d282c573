package volume

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Kind tells what an lvol is for.
type Kind string

// The kinds of lvols.
const (
	KindVolume   Kind = "volume"
	KindSnapshot Kind = "snapshot" // one that was requested
	KindInternal Kind = "internal" // a snapshot that cloning created
	KindHelper   Kind = "helper"   // a clone that exists only while another clone is created
)

var helperLvol = regexp.MustCompile(`^helper\.[a-z2-7]{16}$`)

// A Listed is an lvol as its lvstore lists it, without a query for it alone.
type Listed struct {
	UUID     string
	Store    string
	Name     string
	Kind     Kind
	Source   string  // UUID of the volume that a snapshot was taken of; empty if unknown
	Requests string  // equal for snapshots that were requested under the same name; empty for all else
	Degraded bool    // SPDK could not create its bdev
	Group    GroupID // of which the snapshot is a member; empty if of none
}

// Used tells whether the name records that the volume was used, and returns the name without that.
func (l Listed) Used() (plain string, used bool) { return strings.CutSuffix(l.Name, usedSuffix) }

// Inspect lists the lvols of all lvstores of the target, also of those that the driver may not use. It fails with
// ErrStoreMissing if an lvstore is missing, because then it is unknown which volumes exist.
func (s *Service) Inspect(ctx context.Context) ([]Listed, error) {
	if _, err := s.Stores(ctx); err != nil {
		return nil, err
	}
	lvols, err := s.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	if err != nil {
		return nil, fmt.Errorf("target %s: list volumes: %w", s.Name, err)
	}
	all := make([]Listed, len(lvols))
	for i, l := range lvols {
		all[i] = Listed{UUID: l.UUID, Store: l.Lvs.Name, Name: l.Name, Kind: KindVolume, Degraded: l.IsDegraded}
		n, ours := parseName(l.Name)
		switch {
		case ours && n.base:
			all[i].Kind, all[i].Source = KindInternal, n.source
		case ours:
			all[i].Kind, all[i].Source, all[i].Requests = KindSnapshot, n.source, n.hash
			all[i].Group = n.group
		case l.IsSnapshot:
			all[i].Kind = KindSnapshot
		case helperLvol.MatchString(l.Name) && l.IsClone:
			all[i].Kind = KindHelper
		}
	}
	return all, nil
}

// Permits tells whether the driver may use an lvstore.
func (s *Service) Permits(store string) bool { return s.permits(store) }

// KnowsStores tells whether the configuration names the lvstores of the target. If not, a volume that is not listed may be
// in an lvstore that is not loaded.
func (s *Service) KnowsStores() bool { return len(s.Config.Stores) > 0 }

// Exports returns the exports of the same target, with the same credentials.
func (s *Service) Exports() *export.Service { return s.exports }

// Unneeded tells whether an internal snapshot or a helper clone can be deleted now without loss: the snapshot has at most
// one clone, and no host uses that clone; the helper has no data of its own.
func (s *Service) Unneeded(ctx context.Context, l Listed) (bool, error) {
	v, err := s.lookUp(ctx, l.UUID)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrStoreForbidden):
		return false, nil
	case err != nil:
		return false, err
	}
	return s.unneeded(ctx, v)
}

func (s *Service) unneeded(ctx context.Context, v Volume) (bool, error) {
	switch {
	case helperLvol.MatchString(v.Name):
		return v.Base != "" && !v.Snapshot && v.Allocated != nil && *v.Allocated == 0, nil
	case !isBase(v.Name) || len(v.Clones) > 1:
		return false, nil
	case len(v.Clones) == 0:
		return true, nil
	}
	used, err := s.usedByHost(ctx, v.Store+"/"+v.Clones[0])
	return err == nil && !used, err
}

// RemoveUnneeded deletes an internal snapshot or a helper clone if it is still unneeded. Otherwise it fails with ErrInUse.
func (s *Service) RemoveUnneeded(ctx context.Context, id string) error {
	v, err := s.lookUp(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	unneeded, err := s.unneeded(ctx, v)
	if err != nil {
		return err
	}
	if !unneeded {
		return fmt.Errorf("target %s: %w: %s is needed by now: nothing was deleted", s.Name, ErrInUse, v)
	}
	return s.remove(ctx, v)
}
