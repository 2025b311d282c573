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

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A target answers "no such bdev" for a volume that was deleted, and also for one that it cannot show now: its lvstore's
// base bdev is away, the lvstore is still being loaded, or SPDK made no bdev of the volume. This file tells these apart.
// A volume is absent only if every lvstore that may hold it is loaded and lists no such volume.
//
// Which lvstores a target ought to have is known from the configuration. Without that, only those are known that a
// service has seen since it was made.

// A memory is what a service has seen of its target.
type memory struct {
	mu     sync.Mutex
	stores map[string]string // names of the lvstores seen, by UUID
	lists  map[string]list   // of their lvols, by UUID of the lvstore
	sums   map[string]*sum   // of their sizes, by UUID of the lvstore

	swept atomic.Bool // see sweepOnce
}

// A list holds the names of the lvols that an lvstore had.
type list struct {
	names map[string]bool
	at    time.Time
}

// listAge is how old the list of an lvstore may be that is searched for volumes without a bdev before one is created.
const listAge = 30 * time.Second

func newMemory() *memory {
	return &memory{stores: map[string]string{}, lists: map[string]list{}, sums: map[string]*sum{}}
}

// noteStores remembers the lvstores that are there, and returns those that were there before and are not now.
func (m *memory) noteStores(now []Store) (missing []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, st := range now {
		m.stores[st.UUID] = st.Name
	}
	for id, name := range m.stores {
		if !slices.ContainsFunc(now, func(st Store) bool { return st.UUID == id }) {
			missing = append(missing, fmt.Sprintf("%s (%s)", name, id))
		}
	}
	slices.Sort(missing)
	return missing
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

// checkStores tells whether stores are all that the driver may use: an error of kind ErrStoreMissing if not.
func (s *Service) checkStores(stores []Store) error {
	for _, name := range s.Config.Stores {
		if !slices.ContainsFunc(stores, func(s Store) bool { return s.Name == name }) {
			return fmt.Errorf("target %s: %w: %q is configured but not loaded: wait until the target has loaded it, or remove it from lvstores in config.json", s.Name, ErrStoreMissing, name)
		}
	}
	if missing := s.seen.noteStores(stores); len(missing) > 0 {
		return fmt.Errorf("target %s: %w: %s was loaded before and is not now, so its volumes are unknown: bring its base bdev back; if the lvstore was deleted or replaced for good, restart the controller, and name those that remain as lvstores in config.json",
			s.Name, ErrStoreMissing, strings.Join(missing, ", "))
	}
	if len(stores) == 0 {
		return fmt.Errorf("target %s: %w: the target has none: wait until it has loaded one, or create one with bdev_lvol_create_lvstore", s.Name, ErrStoreMissing)
	}
	return nil
}

// waitForExamine waits until the target has made bdevs of all volumes in the lvstores that it lists: it lists an lvstore before.
func (s *Service) waitForExamine(ctx context.Context) error {
	if err := s.rpc.BdevWaitForExamine(ctx); err != nil {
		return fmt.Errorf("target %s: wait until all lvstores are loaded: %w", s.Name, err)
	}
	return nil
}

// confirmAbsent looks again for a volume that has no bdev. Its ErrNotFound means that the volume is absent.
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

// lookUpListed looks up a volume that its lvstore lists. That it has no bdev does not make it absent.
func (s *Service) lookUpListed(ctx context.Context, l spdkrpc.LvolInfo) (Volume, error) {
	v, err := s.lookUp(ctx, l.UUID)
	if !errors.Is(err, ErrNotFound) {
		return v, err
	}
	why := "SPDK made no bdev of it: see the target's log"
	if l.IsDegraded {
		why = "the external snapshot below it is missing: bring it back"
	}
	return volumeOf(l),
		fmt.Errorf("target %s: volume %s (%s): %w: %s, or delete the volume with bdev_lvol_delete if it is not needed", s.Name, l.Alias, l.UUID, ErrDegraded, why)
}

// listedWithoutBdev returns the lvol of a name that the lvstore holds and SPDK made no bdev of; nil if it holds no such lvol. SPDK
// lists an lvstore only as a whole, so the list is kept for a while. It holds what was there before the target's last
// start, perhaps under another of the volume's names.
func (s *Service) listedWithoutBdev(ctx context.Context, st Store, name string, names []string) (*spdkrpc.LvolInfo, error) {
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
		if l.Name == name {
			found = &lvols[i]
		}
	}
	s.seen.keepList(st, list{all, at})
	return found, nil
}
