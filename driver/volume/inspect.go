package volume

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Kind is the purpose of an lvol.
type Kind string

// The kinds of lvols.
const (
	KindVolume   Kind = "volume"
	KindSnapshot Kind = "snapshot" // requested by a user
	KindInternal Kind = "internal" // created by cloning a volume
	KindHelper   Kind = "helper"   // a clone that exists only while another clone is being created
	KindReplica  Kind = "replica"  // a part of a replicated volume, which is Listed.Source
)

var helperLvol = regexp.MustCompile(`^helper\.[a-z2-7]{16}$`)

// A Listed is an lvol as it appears in the list of its lvstore.
type Listed struct {
	UUID     string
	Store    string
	Name     string
	Kind     Kind
	Source   string  // UUID of a snapshot's source volume, or of a replica's volume; empty if unknown
	Requests string  // for a snapshot, a value that depends only on the requested name; otherwise empty
	Degraded bool    // SPDK could not create its bdev
	Group    GroupID // group of the snapshot; empty if none
	Nested   bool    // the lvstore is nested
}

// Used reports whether the name records that the volume has been used. plain is the name without
// the suffix.
func (l Listed) Used() (plain string, used bool) { return strings.CutSuffix(l.Name, usedSuffix) }

// RequestedAs reports whether a snapshot was requested under the given name.
func (l Listed) RequestedAs(name string) bool {
	return l.Kind == KindSnapshot && l.Requests == hash(name)
}

// Inspect lists the lvols of all lvstores of the target, including those that the driver must not
// use. If an lvstore is missing, Inspect fails with ErrStoreMissing, because it is unknown which
// volumes exist. nested is the result of Nested.
func (s *Service) Inspect(ctx context.Context, nested []Nested) ([]Listed, error) {
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
		all[i].Nested = slices.ContainsFunc(nested, func(n Nested) bool { return n.UUID == l.Lvs.UUID })
		n, ours := parseName(l.Name)
		switch {
		case ours && n.base:
			all[i].Kind, all[i].Source = KindInternal, n.source
		case ours:
			all[i].Kind, all[i].Source, all[i].Requests = KindSnapshot, n.source, n.hash
			all[i].Group = n.group
		case l.IsSnapshot:
			all[i].Kind = KindSnapshot
		case isReplica(l.Name):
			r, _ := parseReplica(l.Name)
			all[i].Kind, all[i].Source = KindReplica, r.Volume
		case helperLvol.MatchString(l.Name) && l.IsClone:
			all[i].Kind = KindHelper
		}
	}
	return all, nil
}

// Permits reports whether the driver may use an lvol.
func (s *Service) Permits(l Listed) bool { return !l.Nested && s.permits(l.Store) }

// Nested describes an lvstore or a RAID on a logical volume, which a host may have written.
type Nested struct {
	Kind string // "lvstore" or "RAID"
	Name string
	UUID string // empty for a RAID if the release does not report it
	Why  error  // of kind ErrNested
}

// Nested lists the lvstores and RAIDs that are, or may be, on logical volumes.
func (s *Service) Nested(ctx context.Context) (nested []Nested, err error) {
	ctx = AskOnce(ctx)
	stores, err := s.lvstores(ctx)
	if err != nil {
		return nil, fmt.Errorf("target %s: list lvstores: %w", s.Name, err)
	}
	for _, l := range stores {
		if err := s.checkBase(ctx, l.BaseBdev); errors.Is(err, ErrNested) {
			nested = append(nested, Nested{"lvstore", l.Name, l.UUID, err})
		} else if err != nil {
			return nil, err
		}
	}
	arrays, err := s.rpc.BdevRAIDGetBdevs(ctx, spdkrpc.BdevRAIDGetBdevsParams{Category: spdkrpc.BdevRAIDGetBdevsCategoryAll})
	switch {
	case errors.Is(err, spdkrpc.MethodNotFound): // the target has no RAIDs
		return nested, nil
	case notAllowed(err):
		return append(nested, Nested{Kind: "RAID", Name: "of any name", Why: fmt.Errorf("target %s: %w: cannot list RAID bdevs: allow the driver's role to call bdev_raid_get_bdevs", s.Name, ErrNested)}), nil
	case err != nil:
		return nil, fmt.Errorf("target %s: list RAIDs: %w", s.Name, err)
	}
	for _, a := range arrays {
		for _, member := range membersOf(a.BaseBdevsList) {
			err := s.checkBase(ctx, member)
			if errors.Is(err, ErrNested) {
				nested = append(nested, Nested{"RAID", a.Name, value(a.UUID), err})
				break
			}
			if ignore(err, ErrStoreMissing) != nil { // a member can be missing
				return nil, err
			}
		}
	}
	return nested, nil
}

// KnowsStores reports whether the configuration names the target's lvstores. If the configuration
// names no lvstores, an unlisted volume may be in an lvstore that is not loaded.
func (s *Service) KnowsStores() bool { return len(s.Config.Stores) > 0 }

// Exports returns the service for the exports of the same target, with the same credentials.
func (s *Service) Exports() *export.Service { return s.exports }

// Unneeded reports whether an internal snapshot or a helper clone can now be deleted without loss
// of data. A snapshot is unneeded if it has at most one clone, and no host is using that clone. A
// helper is unneeded if it has no data of its own.
func (s *Service) Unneeded(ctx context.Context, l Listed) (bool, error) {
	v, err := s.lookUp(ctx, l.UUID)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrStoreForbidden), errors.Is(err, ErrNested):
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

// RemoveUnneeded deletes an internal snapshot or a helper clone if it is still unneeded. If the
// object is needed again, it fails with ErrInUse.
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
		return fmt.Errorf("target %s: %w: %s is now needed; nothing was deleted", s.Name, ErrInUse, v)
	}
	return s.remove(ctx, v)
}
