package volume

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A thin volume takes its clusters when they are written. When an lvstore has no more, writes fail on all of its thin
// volumes, so how much may be promised is bounded. SPDK does not add up the sizes of an lvstore's volumes, and tells them
// only one by one: this file keeps the sum of each lvstore, reads it again at times, and follows what this process does.

// Space says how much of an lvstore may be promised to volumes. The zero Space bounds nothing.
type Space struct {
	// Overcommit bounds the sum of the sizes of an lvstore's volumes, as a multiple of the lvstore's size; 0: no bound.
	Overcommit float64
	// Reserve is the part of an lvstore's size, from 0 to 1, that a new volume leaves free.
	Reserve float64
}

// How old the sum of an lvstore may be: then it is read again beside the calls, for others make volumes, too. Before a
// volume is refused it must be younger.
const (
	sumAge       = 5 * time.Minute
	sumAgeIfFull = 10 * time.Second
	forEver      = time.Duration(math.MaxInt64)
)

// A sum adds up what the volumes of an lvstore were promised.
type sum struct {
	mu     sync.Mutex
	read   chan struct{}    // closed when the reading in progress has ended; nil: none
	at     time.Time        // of the last reading; zero: never
	sizes  map[string]int64 // bytes by UUID, and by name while a volume is being made
	total  int64            // of sizes
	during map[string]int64 // what changed since the reading in progress began; -1: deleted
}

func newSum() *sum { return &sum{sizes: map[string]int64{}} }

func (m *memory) sum(st Store) *sum {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sums[st.UUID] == nil {
		m.sums[st.UUID] = newSum()
	}
	return m.sums[st.UUID]
}

// set notes the bytes that a volume was promised; -1: none any more.
func (u *sum) set(volume string, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.put(volume, bytes)
}

func (u *sum) put(volume string, bytes int64) {
	if u.during != nil {
		u.during[volume] = bytes
	}
	u.total -= u.sizes[volume]
	if bytes < 0 {
		delete(u.sizes, volume)
	} else {
		u.sizes[volume] = bytes
		u.total += bytes
	}
}

// known returns the sum of an lvstore. One that is older than sumAge is read again meanwhile; one that is older than wait,
// or was never read, is waited for.
func (s *Service) known(ctx context.Context, st Store, wait time.Duration) (*sum, error) {
	u := s.seen.sum(st)
	u.mu.Lock()
	age := s.Now().Sub(u.at)
	if u.read == nil && age > min(wait, sumAge) {
		u.read, u.during = make(chan struct{}), map[string]int64{}
		go s.readSum(context.WithoutCancel(ctx), st, u)
	}
	reading := u.read
	u.mu.Unlock()
	if age <= wait {
		return u, nil
	}
	select {
	case <-reading:
	case <-ctx.Done():
		return nil, fmt.Errorf("target %s: add up the sizes of the volumes in lvstore %s: %w", s.Name, st.Name, context.Cause(ctx))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.Now().Sub(u.at) > wait {
		return nil, fmt.Errorf("target %s: the sizes of the volumes in lvstore %s could not be read, so it is not known whether another one fits: try again", s.Name, st.Name)
	}
	return u, nil
}

func (s *Service) readSum(ctx context.Context, st Store, u *sum) {
	const atMost = time.Minute
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	at := s.Now()
	sizes, err := s.sizesIn(ctx, st)
	u.mu.Lock()
	defer u.mu.Unlock()
	during := u.during
	close(u.read)
	u.read, u.during = nil, nil
	if err != nil {
		return
	}
	u.at, u.sizes, u.total = at, map[string]int64{}, 0
	for volume, bytes := range sizes {
		u.put(volume, bytes)
	}
	for volume, bytes := range during {
		u.put(volume, bytes)
	}
}

// sizesIn reads what the volumes of an lvstore were promised: their sizes. A snapshot counts with the clusters that only it
// holds, where the release tells.
func (s *Service) sizesIn(ctx context.Context, st Store) (map[string]int64, error) {
	lvols, err := s.lvolsOf(ctx, st)
	if err != nil {
		return nil, err
	}
	const inFlight = 32
	bytes := make([]int64, len(lvols))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i, l := range lvols {
		if isSnapshot(l.Name, l.IsSnapshot) {
			bytes[i] = int64(value(l.NumAllocatedClusters)) * st.ClusterBytes
			continue
		}
		g.Go(func() error {
			v, err := s.lookUp(ctx, l.UUID)
			if errors.Is(err, ErrNotFound) { // deleted meanwhile, or without a bdev: SPDK does not tell its size
				return nil
			}
			bytes[i] = v.SizeBytes
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(lvols))
	for i, l := range lvols {
		sizes[l.UUID] = bytes[i]
	}
	return sizes, nil
}

// limit is how many bytes of volumes the lvstore may have; 0: no limit.
func (s Space) limit(st Store) int64 { return int64(s.Overcommit * float64(st.TotalBytes)) }

func (s Space) reserve(st Store) int64 { return int64(s.Reserve * float64(st.TotalBytes)) }

// LargestVolume returns the size of the largest volume that the lvstore can take now; 0 if none.
func (s *Service) LargestVolume(ctx context.Context, st Store, thick bool) (int64, error) {
	free := st.FreeBytes - s.Space.reserve(st)
	if free <= 0 {
		return 0, nil
	}
	largest := st.TotalBytes // a thin volume takes its clusters later
	if thick {
		largest = free
	}
	if s.Space.Overcommit > 0 {
		u, err := s.known(ctx, st, forEver)
		if err != nil {
			return 0, err
		}
		u.mu.Lock()
		largest = min(largest, s.Space.limit(st)-u.total)
		u.mu.Unlock()
	}
	return max(0, largest/st.ClusterBytes*st.ClusterBytes), nil
}

// A promise counts a volume that is being made or grown against its lvstore's limit.
type promise struct {
	sum    *sum
	volume string
	before int64 // -1: nothing
}

// promise returns an error of kind ErrNoSpace if the lvstore may not be promised bytes for a volume, which goes by its
// UUID or, while it is being made, by its name. Until it is kept or taken back it counts; a promise whose outcome is not
// known counts until the sizes are read again.
func (s *Service) promise(ctx context.Context, st Store, volume string, bytes int64) (*promise, error) {
	if s.Space.Overcommit == 0 {
		return nil, nil
	}
	u, err := s.known(ctx, st, forEver)
	if err != nil {
		return nil, err
	}
	p, err := u.promise(volume, bytes, s.Space.limit(st))
	if err != nil {
		// Others may have deleted volumes meanwhile.
		if u, err = s.known(ctx, st, sumAgeIfFull); err != nil {
			return nil, err
		}
		if p, err = u.promise(volume, bytes, s.Space.limit(st)); err != nil {
			return nil, fmt.Errorf("target %s: %w: lvstore %s has %d bytes in total; %w, which is %g times its size: delete volumes, add an lvstore, or raise thinOvercommit in config.json",
				s.Name, ErrNoSpace, st.Name, st.TotalBytes, err, s.Space.Overcommit)
		}
	}
	return p, nil
}

func (u *sum) promise(volume string, bytes, limit int64) (*promise, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before, ok := u.sizes[volume]
	if !ok {
		before = -1
	}
	if others := u.total - max(0, before); others+bytes > limit {
		return nil, fmt.Errorf("its volumes and snapshots count with %d, and %d more would exceed %d", others, bytes, limit)
	}
	u.put(volume, bytes)
	return &promise{u, volume, before}, nil
}

// keep notes that the volume exists, under its UUID.
func (p *promise) keep(v Volume) {
	if p == nil {
		return
	}
	p.sum.mu.Lock()
	defer p.sum.mu.Unlock()
	if p.volume != v.UUID {
		p.sum.put(p.volume, -1)
	}
	p.sum.put(v.UUID, v.SizeBytes)
}

// takeBack notes that nothing was made.
func (p *promise) takeBack() {
	if p != nil {
		p.sum.set(p.volume, p.before)
	}
}

// forget notes that a volume was deleted.
func (s *Service) forget(id string) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for _, u := range s.seen.sums {
		u.set(id, -1)
	}
}
