package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// stores knows the lvstores of the target by UUID. A name may pass to another
// lvstore, so what was learnt counts only for a moment.
type stores struct {
	known atomic.Pointer[lvstores]

	mu        sync.Mutex // guards what follows
	asking    *question  // the newest under way
	forgotten time.Time
}

// lvstores are those that there were at a time.
type lvstores struct {
	byUUID map[string]store
	asked  time.Time
}

// A question is one that calls share: it was put after each of them came.
type question struct {
	put    time.Time
	done   chan struct{} // closed once answer and err are there
	answer *lvstores
	err    error
}

type store struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	ClusterSize uint64 `json:"cluster_size"`
}

// storesKeep is how long the names of lvstores are taken to hold.
const storesKeep = 2 * time.Second

// list asks for the lvstores, unless that was just done, and since fresh.
func (s *stores) list(ctx context.Context, ask Ask, fresh time.Time) (map[string]store, error) {
	if k := s.learnt(fresh); k != nil {
		return k.byUUID, nil
	}
	for joined := 0; ; joined++ {
		k, q, mine := s.share(fresh)
		switch {
		case k != nil:
			return k.byUUID, nil
		case joined > 1 && !mine: // so that a target that fails is not waited for over and over
			q, mine = newQuestion(), true
		}
		if mine {
			s.put(ctx, ask, q)
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
		// Perhaps only because whoever put it has left: the next one is shared, too.
	}
}

// learnt is what was learnt a moment ago, and since fresh; nil for nothing.
func (s *stores) learnt(fresh time.Time) *lvstores {
	if k := s.known.Load(); k != nil && now().Before(k.asked.Add(storesKeep)) && !k.asked.Before(fresh) {
		return k
	}
	return nil
}

// share is the question under way that was put since fresh, or a new one to put,
// unless the answer has just come.
func (s *stores) share(fresh time.Time) (k *lvstores, q *question, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.learnt(fresh); k != nil {
		return k, nil, false
	}
	if q := s.asking; q != nil && !q.put.Before(fresh) {
		return nil, q, false
	}
	s.asking = newQuestion()
	return nil, s.asking, true
}

func newQuestion() *question { return &question{put: now(), done: make(chan struct{})} }

// put puts a question to the target.
func (s *stores) put(ctx context.Context, ask Ask, q *question) {
	q.err = errCutShort
	defer func() { // after a panic, too, or others would wait for ever
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(q.done)
		if s.asking == q {
			s.asking = nil
		}
		if k := s.known.Load(); q.err == nil && q.put.After(s.forgotten) && (k == nil || k.asked.Before(q.put)) {
			s.known.Store(q.answer)
		}
	}()
	q.answer, q.err = askStores(ctx, ask, q.put)
}

var errCutShort = errors.New("the question for the lvstores was cut short")

func askStores(ctx context.Context, ask Ask, at time.Time) (*lvstores, error) {
	answer, err := ask(ctx, "bdev_lvol_get_lvstores", nil)
	if err != nil {
		return nil, before(err)
	}
	var list []store
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, &unreadableError{"bdev_lvol_get_lvstores", err}
	}
	l := &lvstores{byUUID: make(map[string]store, len(list)), asked: at}
	for _, lvs := range list {
		if id := canonical(lvs.UUID); id != "" {
			l.byUUID[id] = lvs
		}
	}
	return l, nil
}

// forget lets nothing count that was learnt until now: a call has changed it.
func (s *stores) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking, s.forgotten = nil, now()
	s.known.Store(nil)
}
