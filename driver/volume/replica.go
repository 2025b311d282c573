package volume

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
)

// A replica of a replicated volume is an lvol with the name "replica.<UUID of the
// volume>.<number>". Operations on volumes refuse replicas, because changing only one replica would
// destroy the volume.

var replicaLvol = regexp.MustCompile(`^replica\.([0-9a-f]{32})\.([0-2])$`)

// A ReplicaID identifies a replica of a replicated volume.
type ReplicaID struct {
	Volume string // UUID of the replicated volume
	Number int
}

// LvolName returns the name of the replica's lvol.
func (r ReplicaID) LvolName() string {
	return "replica." + strings.ReplaceAll(r.Volume, "-", "") + "." + strconv.Itoa(r.Number)
}

// parseReplica parses the name of a replica's lvol.
func parseReplica(lvol string) (ReplicaID, bool) {
	m := replicaLvol.FindStringSubmatch(lvol)
	if m == nil {
		return ReplicaID{}, false
	}
	number, err := strconv.Atoi(m[2])
	id := dashed(m[1])
	return ReplicaID{id, number}, err == nil && id != ""
}

func isReplica(lvol string) bool {
	_, ok := parseReplica(lvol)
	return ok
}

// notReplica fails with [ErrWrongKind] for a replica.
func (s *Service) notReplica(v Volume) error {
	if r, ok := parseReplica(v.Name); ok {
		return fmt.Errorf("target %s: %w: %s is a replica of the volume %s: use that volume", s.Name, ErrWrongKind, v, r.Volume)
	}
	return nil
}

// FindReplica returns the replica at place, which has the form STORE/NAME. ErrNotFound means that
// the replica does not exist.
func (s *Service) FindReplica(ctx context.Context, place string) (Volume, error) {
	store, name, _ := strings.Cut(place, "/")
	if !isReplica(name) {
		return Volume{}, fmt.Errorf("target %s: %w: %s is not the name of a replica", s.Name, ErrWrongKind, place)
	}
	st, err := s.store(ctx, store)
	if err != nil {
		return Volume{}, err
	}
	v, err := s.lookUp(ctx, place)
	if !errors.Is(err, ErrNotFound) {
		return v, err
	}
	lvols, err := s.lvolsOf(ctx, st)
	if err != nil {
		return Volume{}, err
	}
	for _, l := range lvols {
		if l.Name == name {
			return s.lookUpListed(ctx, l)
		}
	}
	return Volume{}, fmt.Errorf("target %s: replica %s: %w", s.Name, place, ErrNotFound)
}

// AdmitReplica makes a replica reachable only for the host of a publication; see
// [export.Service.AdmitReplica].
func (s *Service) AdmitReplica(ctx context.Context, v Volume, generation uint64, h export.Host, stillPublished func(context.Context) error) error {
	if err := s.exports.AdmitReplica(ctx, v.UUID, generation, h, stillPublished); err != nil {
		return fmt.Errorf("target %s: export the replica %s: %w", s.Name, v, err)
	}
	return nil
}

// WithdrawReplica ends all exports of a replica, which closes their connections.
func (s *Service) WithdrawReplica(ctx context.Context, v Volume) error {
	if err := s.exports.WithdrawReplica(ctx, v.UUID); err != nil {
		return fmt.Errorf("target %s: unexport the replica %s: %w", s.Name, v, err)
	}
	return nil
}

// DeleteReplica ends all exports of a replica and deletes it. The caller must ensure that no node
// is using the volume.
func (s *Service) DeleteReplica(ctx context.Context, v Volume) error {
	if !isReplica(v.Name) || v.Snapshot {
		return fmt.Errorf("target %s: %w: %s is not a replica: nothing was deleted", s.Name, ErrWrongKind, v)
	}
	if err := s.WithdrawReplica(ctx, v); err != nil {
		return err
	}
	return s.remove(ctx, v)
}

// HasOnlyHead reports whether a replica has no clusters beyond its head, which means that no data
// has ever been written to it. If this is unknown, HasOnlyHead returns false.
func (s *Service) HasOnlyHead(ctx context.Context, v Volume, headBytes int64) (bool, error) {
	if !v.Thin || v.Allocated == nil || v.Base != "" {
		return false, nil
	}
	st, err := s.store(ctx, v.Store)
	if err != nil {
		return false, err
	}
	return int64(*v.Allocated)*st.ClusterBytes <= headBytes, nil
}
