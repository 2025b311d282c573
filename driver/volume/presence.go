package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A target returns "no such bdev" not only for a deleted volume, but also for a volume whose bdev
// is currently missing. The base bdev of its lvstore may be detached, the lvstore may still be
// loading, or SPDK could not create the volume's bdev. This file distinguishes deleted volumes from
// volumes with missing bdevs. A volume counts as absent only if every lvstore that may contain the
// volume is loaded and does not list it.
//
// The configuration can list the lvstores that a target should have. Without such a list, a service
// can only compare the loaded lvstores with the lvstores that it has seen.

// A memory records what a service has seen on its target.
type memory struct {
	mu     sync.Mutex
	stores map[string]Store // the lvstores seen so far, by UUID; only UUID, name and base bdev are set
	lists  map[string]list  // lists of lvols, by UUID of the lvstore
	sums   map[string]*sum  // sums of sizes, by UUID of the lvstore

	refused map[string]bool // whether volumes that may be dropped had clusters, by UUID (see dropped.go)

	swept atomic.Bool // set by sweepOnce
}

// A list contains the names of the lvols in an lvstore at a point in time.
type list struct {
	names map[string]bool
	at    time.Time
}

// listAge is the maximum age of a cached list that the driver searches for a volume without a bdev
// before it creates the volume.
const listAge = 30 * time.Second

func newMemory() *memory {
	return &memory{stores: map[string]Store{}, lists: map[string]list{}, sums: map[string]*sum{}, refused: map[string]bool{}}
}

// noteStores records the loaded lvstores, and returns those that were loaded before but are no
// longer loaded.
func (m *memory) noteStores(now []Store) (missing []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, st := range now {
		m.stores[st.UUID] = Store{UUID: st.UUID, Name: st.Name, Base: st.Base}
	}
	for id, former := range m.stores {
		if !slices.ContainsFunc(now, func(st Store) bool { return st.UUID == id }) {
			missing = append(missing, fmt.Sprintf("%s (%s)", former.Name, id))
		}
	}
	slices.Sort(missing)
	return missing
}

// haveAll reports whether all of these lvstores have been seen before.
func (m *memory) haveAll(stores []Store) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(stores, func(st Store) bool { _, ok := m.stores[st.UUID]; return !ok })
}

// known returns the lvstores that have been seen before, with their names and base bdevs.
func (m *memory) known() (stores []Store) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, st := range m.stores {
		stores = append(stores, st)
	}
	return stores
}

func (m *memory) listed(st Store) (list, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.lists[st.UUID]
	return l, ok
}

func (m *memory) keepList(st Store, l list) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists[st.UUID] = l
}

// checkStores fails with ErrStoreMissing if an lvstore that the driver may use is not among stores.
func (s *Service) checkStores(stores []Store) error {
	for _, name := range s.Config.Stores {
		if !slices.ContainsFunc(stores, func(s Store) bool { return s.Name == name }) {
			return fmt.Errorf("target %s: %w: %q is configured but not loaded: wait until the target has loaded it, or remove it from lvstores in config.json", s.Name, ErrStoreMissing, name)
		}
	}
	if missing := s.seen.noteStores(stores); len(missing) > 0 {
		return fmt.Errorf("target %s: %w: %s was loaded before but is not loaded now, so its volumes are unknown: restore its base bdev; if the lvstore was deleted or replaced, list the remaining lvstores in config.json",
			s.Name, ErrStoreMissing, strings.Join(missing, ", "))
	}
	if len(stores) == 0 {
		return fmt.Errorf("target %s: %w: the target has no lvstore: wait until it has loaded one, or create one with bdev_lvol_create_lvstore", s.Name, ErrStoreMissing)
	}
	return nil
}

// waitForExamine waits until the target has created the bdevs of all volumes in the lvstores that
// it lists. The target lists an lvstore before the bdevs of its volumes exist.
func (s *Service) waitForExamine(ctx context.Context) error {
	_, err := coalesce.Do(ctx, &s.reads, "examine", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.rpc.BdevWaitForExamine(ctx)
	})
	if err != nil {
		return fmt.Errorf("target %s: wait until all lvstores are loaded: %w", s.Name, err)
	}
	return nil
}

// confirmAbsent looks for a volume without a bdev in the lists of all lvstores. It returns
// ErrNotFound only if the volume is definitely absent.
func (s *Service) confirmAbsent(ctx context.Context, id string) (Volume, error) {
	lvols, err := s.lvols(ctx)
	if err != nil {
		return Volume{}, fmt.Errorf("volume %s was not found, but may exist: %w", id, err)
	}
	for _, l := range lvols {
		if l.UUID == id {
			return s.lookUpListed(ctx, l)
		}
	}
	return Volume{}, fmt.Errorf("target %s: volume %q: %w", s.Name, id, ErrNotFound)
}

// lookUpListed looks up a volume that its lvstore lists. If the volume has no bdev, it fails with
// ErrDegraded rather than ErrNotFound.
func (s *Service) lookUpListed(ctx context.Context, l spdkrpc.LvolInfo) (Volume, error) {
	v, err := s.lookUp(ctx, l.UUID)
	if !errors.Is(err, ErrNotFound) {
		return v, err
	}
	why := "SPDK could not create its bdev: see the target's log"
	if l.IsDegraded {
		why = "the external snapshot below it is missing: bring it back"
	}
	return volumeOf(l),
		fmt.Errorf("target %s: volume %s (%s): %w: %s, or delete the volume with bdev_lvol_delete if it is not needed", s.Name, l.Alias, l.UUID, ErrDegraded, why)
}

// listedWithoutBdev searches the list of an lvstore for an lvol that has one of these names but no
// bdev, and returns nil if there is none. SPDK can list an lvstore only as a whole, so the list is
// cached for listAge. A cached list is safe: an lvol without a bdev already existed when the target
// last started, so every cached list contains the lvol, perhaps under another of these names.
func (s *Service) listedWithoutBdev(ctx context.Context, st Store, names []string) (*spdkrpc.LvolInfo, error) {
	kept, ok := s.seen.listed(st)
	if ok && s.Now().Sub(kept.at) < listAge && !slices.ContainsFunc(names, func(n string) bool { return kept.names[n] }) {
		return nil, nil
	}
	at := s.Now()
	lvols, err := s.lvolsOf(ctx, st)
	if err != nil {
		return nil, err
	}
	var found *spdkrpc.LvolInfo
	all := make(map[string]bool, len(lvols))
	for i, l := range lvols {
		all[l.Name] = true
		if slices.Contains(names, l.Name) {
			found = &lvols[i]
		}
	}
	s.seen.keepList(st, list{all, at})
	return found, nil
}
