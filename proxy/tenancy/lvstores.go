package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// stores caches the target's lvstores by UUID. The cache is used only briefly, because a name can
// move to another lvstore.
type stores struct {
	known atomic.Pointer[lvstores]

	mu        sync.Mutex    // guards the members below
	running   *lvstoreQuery // the newest running query; nil if there is none
	forgotten time.Time
}

// lvstores contains the target's lvstores at one point in time.
type lvstores struct {
	byUUID map[string]store
	asked  time.Time
}

// An lvstoreQuery is a query for the lvstores that several calls may share. All of these calls
// arrived before the query began.
type lvstoreQuery struct {
	began  time.Time
	done   chan struct{} // closed when answer and err are set
	answer *lvstores
	err    error
}

type store struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	ClusterSize uint64 `json:"cluster_size"`
	Base        string `json:"base_bdev"`
	OnVolume    bool   `json:"-"` // Base is a logical volume, or is based on one
}

// storesKeep is how long the cached list of lvstores is used.
const storesKeep = 2 * time.Second

// list returns the lvstores, from the cache if it is recent and not older than fresh.
func (s *stores) list(ctx context.Context, ask Ask, fresh time.Time) (map[string]store, error) {
	if k := s.cached(fresh); k != nil {
		return k.byUUID, nil
	}
	for joined := 0; ; joined++ {
		k, q, mine := s.share(fresh)
		switch {
		case k != nil:
			return k.byUUID, nil
		case joined > 1 && !mine: // a call must not wait repeatedly for a failing target
			q, mine = newQuery(), true
		}
		if mine {
			s.run(ctx, ask, q)
			if q.err != nil {
				return nil, q.err
			}
			return q.answer.byUUID, nil
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if q.err == nil {
			return q.answer.byUUID, nil
		}
		// The query may have failed only because its caller disconnected, so loop to share the next
		// query.
	}
}

// cached returns the cache if it is recent and not older than fresh, and otherwise nil.
func (s *stores) cached(fresh time.Time) *lvstores {
	if k := s.known.Load(); k != nil && now().Before(k.asked.Add(storesKeep)) && !k.asked.Before(fresh) {
		return k
	}
	return nil
}

// share returns the running query if it began after fresh, or the cache if a response has just
// arrived. Otherwise, it returns a new query. mine means that the caller must run the query.
func (s *stores) share(fresh time.Time) (k *lvstores, q *lvstoreQuery, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.cached(fresh); k != nil {
		return k, nil, false
	}
	if q := s.running; q != nil && !q.began.Before(fresh) {
		return nil, q, false
	}
	s.running = newQuery()
	return nil, s.running, true
}

func newQuery() *lvstoreQuery { return &lvstoreQuery{began: now(), done: make(chan struct{})} }

// run runs a query, and stores its response in the cache.
func (s *stores) run(ctx context.Context, ask Ask, q *lvstoreQuery) {
	q.err = errInterrupted
	defer func() { // even after a panic; otherwise, other calls would wait forever
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(q.done)
		if s.running == q {
			s.running = nil
		}
		if k := s.known.Load(); q.err == nil && q.began.After(s.forgotten) && (k == nil || k.asked.Before(q.began)) {
			s.known.Store(q.answer)
		}
	}()
	q.answer, q.err = askStores(ctx, ask, q.began)
}

var errInterrupted = errors.New("the query for the lvstores was interrupted")

func askStores(ctx context.Context, ask Ask, at time.Time) (*lvstores, error) {
	answer, err := ask(ctx, "bdev_lvol_get_lvstores", nil)
	if err != nil {
		return nil, notExecuted(err)
	}
	var list []store
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, &unreadableError{"bdev_lvol_get_lvstores", err}
	}
	l := &lvstores{byUUID: make(map[string]store, len(list)), asked: at}
	for _, lvs := range list {
		if id := rpcschema.CanonicalUUID(lvs.UUID); id != "" {
			l.byUUID[id] = lvs
		}
	}
	return l, l.noteVolumes(ctx, ask)
}

// forget empties the cache after a call has changed the lvstores.
func (s *stores) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.forgotten = nil, now()
	s.known.Store(nil)
}
