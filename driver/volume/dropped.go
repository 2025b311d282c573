package volume

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// When SPDK refuses to delete a volume because its blob is busy, it can drop the volume from its lists nevertheless. Then the
// volume looks deleted, but its clusters stay allocated, its data is not cleared, and it is back when the target is restarted.
// So a volume that is listed no longer is deleted only if SPDK said so, or if each allocated cluster belongs to a listed volume.

// An Unlisted tells how many allocated clusters of an lvstore belong to no volume that the target lists.
type Unlisted struct {
	Store    Store
	Clusters int64
}

// Bytes is the space that is taken.
func (u Unlisted) Bytes() int64 { return u.Clusters * u.Store.ClusterBytes }

// Readings in a row that have to find unlisted clusters, because hosts allocate clusters between the queries of a reading, and
// a volume that is being deleted is not listed while SPDK clears its clusters.
const unlistedReadings = 4

// unlistedPause is the time before the second reading. It doubles with each.
const unlistedPause = 50 * time.Millisecond

// errNoClusters: the release does not report how many clusters volumes have.
var errNoClusters = errors.New("this release of SPDK does not report allocated clusters")

// Unlisted lists the lvstores with allocated clusters that no listed volume has. It returns nothing for releases that do not
// report the clusters of volumes.
func (s *Service) Unlisted(ctx context.Context) ([]Unlisted, error) {
	found, err := s.unlisted(ctx)
	if errors.Is(err, errNoClusters) {
		return nil, nil
	}
	return found, err
}

func (s *Service) unlisted(ctx context.Context) (found []Unlisted, err error) {
	before, err := s.Stores(ctx)
	if err != nil {
		return nil, err
	}
	pause := unlistedPause
	for reading := 1; ; reading++ {
		if before, found, err = s.readUnlisted(ctx, before); err != nil || len(found) == 0 || reading == unlistedReadings {
			return found, err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return nil, fmt.Errorf("target %s: count the clusters that no volume has: %w", s.Name, context.Cause(ctx))
		}
	}
}

// readUnlisted counts once. An lvstore whose free space changed meanwhile is among the found ones.
func (s *Service) readUnlisted(ctx context.Context, before []Store) (after []Store, found []Unlisted, err error) {
	allocated := make(map[string]int64, len(before))
	for _, st := range before {
		lvols, err := s.lvolsOf(ctx, st)
		if err != nil {
			return nil, nil, err
		}
		for _, l := range lvols {
			if l.NumAllocatedClusters == nil {
				return nil, nil, errNoClusters
			}
			allocated[st.UUID] += int64(*l.NumAllocatedClusters)
		}
	}
	if after, err = s.Stores(AskOnce(ctx)); err != nil {
		return nil, nil, err
	}
	free := make(map[string]int64, len(before))
	for _, st := range before {
		free[st.UUID] = st.FreeBytes
	}
	for _, st := range after {
		clusters := (st.TotalBytes-st.FreeBytes)/st.ClusterBytes - allocated[st.UUID]
		if was, seen := free[st.UUID]; !seen || was != st.FreeBytes || clusters != 0 {
			found = append(found, Unlisted{st, clusters})
		}
	}
	return after, found, nil
}

// proveDeleted verifies that a volume that the target does not list is deleted, and not dropped. It fails with ErrDropped if
// that is unknown. Clusters prove nothing about a volume that had none, or on releases that do not report them. Then only what
// this process remembers is left: whether SPDK refused to delete the volume, and listed it no longer.
func (s *Service) proveDeleted(ctx context.Context, id string) error {
	found, err := s.unlisted(ctx)
	counted := !errors.Is(err, errNoClusters)
	if counted && err != nil {
		return fmt.Errorf("target %s: volume %s is not listed, but may exist: %w", s.Name, id, err)
	}
	if len(found) > 0 {
		return fmt.Errorf("target %s: %w: volume %s is not listed, but %d clusters of lvstore %s belong to no listed volume: SPDK is writing or deleting another volume, or it has dropped this one: try again; if that stays, restart spdk_tgt, and see spdk-csi doctor",
			s.Name, ErrDropped, id, found[0].Clusters, found[0].Store.Name)
	}
	if clusters, refused := s.seen.refusal(id); refused && !(counted && clusters) {
		return fmt.Errorf("target %s: %w: SPDK refused to delete volume %s, and lists it no longer, so it may be back after a restart: restart spdk_tgt, and then the controller of spdk-csi", s.Name, ErrDropped, id)
	}
	s.seen.forgetRefusal(id)
	return nil
}

// noteRefusal remembers that SPDK refused to delete a volume, and listed it no longer.
func (m *memory) noteRefusal(v Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[v.UUID] = value(v.Allocated) > 0
}

func (m *memory) forgetRefusal(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.refused, id)
}

func (m *memory) refusal(id string) (clusters, refused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clusters, refused = m.refused[id]
	return clusters, refused
}
