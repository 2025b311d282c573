package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// If a volume's blob is busy, SPDK refuses to delete the volume, but may still remove it from its
// lists. Such a volume looks deleted, but its clusters remain allocated, its data is not cleared,
// and the volume reappears when the target restarts. An unlisted volume therefore counts as deleted
// only if SPDK reports that the volume does not exist, or if every allocated cluster belongs to a
// listed volume.

// An Unlisted describes the allocated clusters of an lvstore that belong to no listed volume.
type Unlisted struct {
	Store    Store
	Clusters int64
}

// Bytes returns the space that the clusters occupy.
func (u Unlisted) Bytes() int64 { return u.Clusters * u.Store.ClusterBytes }

// unlistedReadings limits how many passes read an lvstore to obtain consistent figures. Hosts
// allocate clusters between the queries of a pass, and SPDK no longer lists a deleted volume while
// it is clearing the volume's clusters.
const unlistedReadings = 4

// unlistedPause is the pause before the second pass. The pause doubles with each pass.
const unlistedPause = 50 * time.Millisecond

// errNoClusters means that the release does not report the number of clusters of a volume.
var errNoClusters = errors.New("this release of SPDK does not report allocated clusters")

// Unlisted lists the lvstores where every pass found allocated clusters that belong to no listed
// volume, with the lowest number of such clusters. It returns nothing for releases that do not
// report the clusters of volumes.
func (s *Service) Unlisted(ctx context.Context) (found []Unlisted, err error) {
	unproven, err := s.unproven(ctx)
	if errors.Is(err, errNoClusters) {
		return nil, nil
	}
	for _, u := range unproven {
		if u.Clusters > 0 {
			found = append(found, u)
		}
	}
	return found, err
}

// unproven lists the lvstores for which no pass proved that every allocated cluster belongs to a
// listed volume, with the lowest number of clusters that belong to no listed volume. If the number
// is zero or negative, the lvstore is merely changing too fast to be counted.
func (s *Service) unproven(ctx context.Context) (found []Unlisted, err error) {
	before, err := s.Stores(ctx)
	if err != nil {
		return nil, err
	}
	pause := unlistedPause
	lowest := map[string]int64{} // by lvstore, from earlier passes
	for reading := 1; ; reading++ {
		after, read, err := s.readUnlisted(ctx, before)
		if err != nil {
			return nil, err
		}
		found = found[:0]
		for _, u := range read {
			clusters, unproven := lowest[u.Store.UUID]
			if reading > 1 && !unproven {
				continue // an earlier pass proved that every cluster belongs to a listed volume
			}
			if reading > 1 {
				u.Clusters = min(u.Clusters, clusters)
			}
			found = append(found, u)
		}
		if len(found) == 0 || reading == unlistedReadings {
			return found, nil
		}
		clear(lowest)
		for _, u := range found {
			lowest[u.Store.UUID] = u.Clusters
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return nil, fmt.Errorf("target %s: count the clusters that belong to no volume: %w", s.Name, context.Cause(ctx))
		}
		before = after
	}
}

// readUnlisted makes one pass. It returns the lvstores whose free space changed during the pass or
// does not match their volumes.
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
	for _, st := range after {
		i := slices.IndexFunc(before, func(was Store) bool { return was.UUID == st.UUID })
		if i < 0 {
			found = append(found, Unlisted{Store: st}) // the volumes in this lvstore were not counted
			continue
		}
		used := (st.TotalBytes - max(st.FreeBytes, before[i].FreeBytes)) / st.ClusterBytes
		if clusters := used - allocated[st.UUID]; before[i].FreeBytes != st.FreeBytes || clusters != 0 {
			found = append(found, Unlisted{st, clusters})
		}
	}
	return after, found, nil
}

// proveDeleted verifies that an unlisted volume was deleted rather than dropped. If the deletion
// cannot be verified, proveDeleted fails with ErrDropped. Cluster counts prove nothing if the
// volume had no clusters, or if the release does not report clusters. In those cases, the only
// evidence is whether this process saw SPDK refuse to delete the volume but stop listing it.
func (s *Service) proveDeleted(ctx context.Context, id string) error {
	unproven, err := s.unproven(ctx)
	counted := !errors.Is(err, errNoClusters)
	if counted && err != nil {
		return fmt.Errorf("target %s: volume %s is not listed, but may exist: %w", s.Name, id, err)
	}
	if len(unproven) > 0 {
		u := unproven[0]
		if u.Clusters <= 0 {
			return fmt.Errorf("target %s: %w: volume %s is not listed, but the free space of lvstore %s changes too often to verify that SPDK deleted the volume: try again",
				s.Name, ErrDropped, id, u.Store.Name)
		}
		return fmt.Errorf("target %s: %w: volume %s is not listed, but %d clusters of lvstore %s belong to no listed volume: SPDK is writing to or deleting another volume, or it has dropped this one: try again; if the error persists, restart spdk_tgt, and see spdk-csi doctor",
			s.Name, ErrDropped, id, u.Clusters, u.Store.Name)
	}
	if clusters, refused := s.seen.refusal(id); refused && !(counted && clusters) {
		return fmt.Errorf("target %s: %w: SPDK refused to delete volume %s, but no longer lists it, so it may reappear after a restart: restart spdk_tgt, and then the controller of spdk-csi", s.Name, ErrDropped, id)
	}
	s.seen.forgetRefusal(id)
	return nil
}

// noteRefusal records that SPDK refused to delete a volume but no longer listed it.
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
