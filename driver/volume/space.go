package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A thin volume allocates a cluster when the cluster is first written to. If an lvstore has no free
// clusters, such writes fail on all of its thin volumes. The sum of the volume sizes in an lvstore
// is therefore limited. SPDK does not report this sum, and reports only one size at a time. This
// file maintains the sum for each lvstore. It updates the sum with each volume that this process
// creates, grows or deletes, and periodically rereads all sizes.

// Space limits the sum of the volume sizes in an lvstore, and the space that new volumes may use.
// The zero Space sets no limits.
type Space struct {
	// Overcommit limits the sum of the volume sizes in an lvstore, as a multiple of the lvstore's
	// size; 0 means no limit.
	Overcommit float64
	// Reserve is the fraction of an lvstore's size, from 0 to 1, that new volumes leave free.
	Reserve float64
}

// The maximum ages of the sum for an lvstore. A sum older than sumAge is reread in the background,
// because other clients also create volumes. A sum older than sumAgeIfFull is reread before the
// driver refuses a volume for lack of space.
const (
	sumAge       = 5 * time.Minute
	sumAgeIfFull = 10 * time.Second
	forEver      = time.Duration(math.MaxInt64)
)

// A sum is the sum of the volume sizes in an lvstore.
type sum struct {
	mu     sync.Mutex
	read   chan struct{}    // closed when the current read of the sizes ends; nil if no read is running
	at     time.Time        // time of the last read; zero before the first read
	failed error            // error of the last read; nil after success
	sizes  map[string]int64 // bytes by UUID, or by name while a volume is being created
	total  int64            // sum of sizes
	during map[string]int64 // changes since the current read began; -1 for a deleted volume
	chain  int              // Usage.LongestChain at the last read
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

// set records a volume's size in bytes. The size -1 means that the volume no longer exists.
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

// known returns the sum for an lvstore. If the sum is older than sumAge, known starts rereading the
// sizes in the background. If the sum is older than wait, or has never been read, known waits for
// that read.
func (s *Service) known(ctx context.Context, st Store, wait time.Duration) (*sum, error) {
	u := s.seen.sum(st)
	u.mu.Lock()
	age, never := s.Now().Sub(u.at), u.at.IsZero()
	if u.read == nil && (never || age > min(wait, sumAge)) {
		u.read, u.during = make(chan struct{}), map[string]int64{}
		go s.readSum(context.WithoutCancel(ctx), st, u)
	}
	reading := u.read
	u.mu.Unlock()
	if !never && age <= wait {
		return u, nil
	}
	select {
	case <-reading:
	case <-ctx.Done():
		return nil, fmt.Errorf("target %s: add up the sizes of the volumes in lvstore %s: %w", s.Name, st.Name, context.Cause(ctx))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.IsZero() || s.Now().Sub(u.at) > wait {
		return nil, fmt.Errorf("target %s: the sizes of the volumes in lvstore %s could not be read, so it is not known whether another one fits: try again: %w", s.Name, st.Name, cmp.Or(u.failed, ErrBusy))
	}
	return u, nil
}

// noAnswer limits the time without any response of the target while sizes are read. The total time
// of the read is unlimited, because a controller that has just started reads all lvstores
// concurrently.
const noAnswer = time.Minute

func (s *Service) readSum(ctx context.Context, st Store, u *sum) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(noAnswer, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	at := s.Now()
	sizes, chain, err := s.sizesIn(ctx, st, func() { silent.Reset(noAnswer) })
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("no response within %s: %w", noAnswer, cause)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	during := u.during
	close(u.read)
	u.read, u.during, u.failed = nil, nil, err
	if err != nil {
		return
	}
	u.at, u.sizes, u.total, u.chain = at, map[string]int64{}, 0, chain
	for volume, bytes := range sizes {
		u.put(volume, bytes)
	}
	for volume, bytes := range during {
		u.put(volume, bytes)
	}
}

// sizesIn reads the volume sizes in an lvstore, and the length of the longest chain. For a
// snapshot, it counts only the snapshot's own clusters, if the release reports them. It calls
// answered after each response of the target.
func (s *Service) sizesIn(ctx context.Context, st Store, answered func()) (sizes map[string]int64, chain int, err error) {
	lvols, err := s.lvolsOf(ctx, st)
	if err != nil {
		return nil, 0, err
	}
	const inFlight = 32
	ctx = AskOnce(ctx)
	if err := s.checkBase(ctx, st.Base); err != nil { // check here, because every look-up needs the result
		return nil, 0, err
	}
	answered()
	each := make([]Volume, len(lvols))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i, l := range lvols {
		g.Go(func() error {
			v, err := s.lookUp(ctx, l.UUID)
			answered()
			if errors.Is(err, ErrNotFound) { // deleted, or without a bdev: SPDK does not report its size
				return nil
			}
			each[i] = v
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	sizes, bases := make(map[string]int64, len(lvols)), make(map[string]string, len(lvols))
	for i, l := range lvols {
		sizes[l.UUID] = each[i].SizeBytes
		if isSnapshot(l.Name, l.IsSnapshot) {
			sizes[l.UUID] = int64(value(l.NumAllocatedClusters)) * st.ClusterBytes
		}
		bases[l.Name] = each[i].Base
	}
	return sizes, longestChain(bases), nil
}

// longestChain returns the number of snapshots below the volume with the longest chain. bases maps
// the name of each volume and snapshot to the snapshot directly below it.
func longestChain(bases map[string]string) (longest int) {
	depths := make(map[string]int, len(bases))
	var depth func(name string) int
	depth = func(name string) int {
		base := bases[name]
		if base == "" {
			return 0
		}
		if d, known := depths[name]; known {
			return d
		}
		depths[name] = len(bases) // ends a cycle, which cannot exist in SPDK, but can appear if two lists are merged
		depths[name] = 1 + depth(base)
		return depths[name]
	}
	for name := range bases {
		longest = max(longest, depth(name))
	}
	return min(longest, len(bases))
}

// limit returns the limit on the sum of the volume sizes in an lvstore; 0 means no limit.
func (s Space) limit(st Store) int64 { return int64(s.Overcommit * float64(st.TotalBytes)) }

func (s Space) reserve(st Store) int64 { return int64(s.Reserve * float64(st.TotalBytes)) }

// LargestVolume returns the size of the largest volume that can be created in the lvstore now, or 0
// if no volume can be created.
func (s *Service) LargestVolume(ctx context.Context, st Store, thick bool) (int64, error) {
	free := st.FreeBytes - s.Space.reserve(st)
	if free <= 0 {
		return 0, nil
	}
	largest := st.TotalBytes // a thin volume allocates its clusters later
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

// Usage describes the usage of an lvstore. The figures may be a few minutes old.
type Usage struct {
	// PromisedBytes is the sum of the sizes of all volumes, plus the clusters that only snapshots
	// occupy.
	PromisedBytes int64
	// LongestChain is the number of snapshots below the volume with the longest chain. At maxDepth,
	// no more snapshots are taken.
	LongestChain int
}

// Usage returns the usage of an lvstore.
func (s *Service) Usage(ctx context.Context, st Store) (Usage, error) {
	u, err := s.known(ctx, st, forEver)
	if err != nil {
		return Usage{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return Usage{u.total, u.chain}, nil
}

// A promise reserves space for a volume that is being created or grown, within the limit of its
// lvstore.
type promise struct {
	sum    *sum
	volume string
	before int64 // the volume's previous size in the sum; -1 if it was not included
}

// promise reserves bytes for a volume in the lvstore's sum. It fails with ErrNoSpace if the sum
// would exceed the limit. The volume is identified by its UUID or, while it is being created, by
// its name. The caller must end the promise with keep or takeBack. If the outcome of the creation
// is unknown, the caller must call neither, so that the reserved bytes count until the sizes are
// reread.
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
		// Other clients may have deleted volumes.
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
		return nil, fmt.Errorf("the sizes of its volumes and snapshots add up to %d, and %d more would exceed the limit of %d", others, bytes, limit)
	}
	u.put(volume, bytes)
	return &promise{u, volume, before}, nil
}

// keep records the UUID and size of a volume that was created or grown.
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

// takeBack restores the volume's previous size after SPDK refused to create or grow it.
func (p *promise) takeBack() {
	if p != nil {
		p.sum.set(p.volume, p.before)
	}
}

// forget removes a deleted volume from the sums.
func (s *Service) forget(id string) {
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	for _, u := range s.seen.sums {
		u.set(id, -1)
	}
}
