package witness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// These are the errors of a [Store].
var (
	// ErrUnknown means that the API server did not respond to a write before the context ended, or
	// that the witness has changed again since the write. The change may have been stored, or may
	// still be stored later.
	ErrUnknown = errors.New("it is unknown whether the change of the witness was stored")
	// ErrNotInstalled means that the API does not have the resource ReplicatedVolume.
	ErrNotInstalled = errors.New("the Kubernetes API does not have the resource replicatedvolumes.spdkgate.io: install the component replication, or set replication in the chart's values")
	// ErrNotFound means that the volume has no witness.
	ErrNotFound = errors.New("the volume has no witness")
	// ErrOlder means that a witness is older than the witness that this process has already read.
	// Either the API server's data was restored, or the API server is returning old data.
	ErrOlder = errors.New("the witness is older than before: the API server's data was restored from a backup, or the API server returns old data")
	// ErrReplaced means that the witness is not the object that the caller has used so far.
	ErrReplaced = errors.New("the witness was deleted and created again, possibly from a backup")
	// ErrDeleting means that the volume with this name is being deleted.
	ErrDeleting = errors.New("the volume of this name is being deleted: delete it completely first")
	// ErrOther means that a volume with this name exists, but has replicas in other places.
	ErrOther = errors.New("a witness of this name has replicas in other places")
	// ErrInUse means that a volume cannot be deleted, because it is published to a node.
	ErrInUse = errors.New("the volume is published to a node")
	// ErrAltered means that the API server stored a different object than it received, for example
	// because the installed resource definition lacks some fields.
	ErrAltered = errors.New("the API server has stored a different witness than it received: install the resource definition of this version")
)

// A Store reads and changes witnesses. It is safe for concurrent use.
type Store struct {
	client *kubernetes.Client
	// pause waits before a change repeats a call. Tests replace pause.
	pause func(ctx context.Context, attempt int) error

	mu   sync.Mutex
	seen map[string]mark // by name
}

// A mark is the oldest state that a later read of the same witness can return.
type mark struct {
	uid               string
	epoch, generation uint64
}

// NewStore returns a store that calls the API with this client.
func NewStore(client *kubernetes.Client) *Store {
	return &Store{client: client, pause: pause, seen: map[string]mark{}}
}

func pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(pauseAfter(attempt))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// pauseAfter returns how long to wait after an attempt, counted from 0. The pause doubles with each
// attempt, up to 5 s.
func pauseAfter(attempt int) time.Duration {
	return min(50*time.Millisecond<<min(attempt, 10), 5*time.Second)
}

func pathOf(name string) string { return collection + "/" + url.PathEscape(name) }

// Get returns the witness of a volume as it is currently stored.
func (s *Store) Get(ctx context.Context, name string) (Record, error) {
	before := s.newest(name)
	text, err := s.client.Send(ctx, http.MethodGet, pathOf(name), nil)
	if err != nil {
		if err = named(name, err); errors.Is(err, ErrNotFound) {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.seen, name)
		}
		return Record{}, err
	}
	return s.accept(name, before, text)
}

// newest returns the newest state of a witness that this process has read. A call that begins later
// must not return an older state.
func (s *Store) newest(name string) mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

// accept decodes a response, and rejects a witness that is older than the mark before.
func (s *Store) accept(name string, before mark, text []byte) (Record, error) {
	r, err := decode(text)
	if err != nil {
		return Record{}, named(name, err)
	}
	if r.Name != name {
		return Record{}, named(name, fmt.Errorf("%w: the API server returned the witness of %s", ErrUnreadable, r.Name))
	}
	now := mark{r.UID, r.Witness.Epoch, r.Witness.Writer.Generation}
	if before.uid == now.uid && (now.epoch < before.epoch || now.generation < before.generation) {
		return Record{}, named(name, fmt.Errorf("%w: epoch %d and generation %d were read after epoch %d and generation %d", ErrOlder, now.epoch, now.generation, before.epoch, before.generation))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.seen[name]; other.uid == now.uid {
		now.epoch, now.generation = max(now.epoch, other.epoch), max(now.generation, other.generation)
	}
	s.seen[name] = now
	return r, nil
}

// named adds the volume's name to an error, and converts errors of the API to errors of this
// package.
func named(name string, err error) error {
	switch {
	case errors.Is(err, kubernetes.ErrNoResource):
		err = fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	case errors.Is(err, kubernetes.ErrNotFound):
		err = fmt.Errorf("%w (%w)", ErrNotFound, err)
	}
	return fmt.Errorf("witness of volume %s: %w", name, err)
}

// refused reports whether the API server definitely did not execute a call.
func refused(err error) bool {
	for _, kind := range []error{kubernetes.ErrNoAccess, kubernetes.ErrForbidden, kubernetes.ErrNotFound, kubernetes.ErrChanged, kubernetes.ErrInvalid} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Create creates the witness of a volume before its replicas are created. If a witness with the
// same places exists, possibly from an interrupted call, Create returns that witness.
func (s *Store) Create(ctx context.Context, name string, places ...Place) (Record, error) {
	if len(places) == 0 || len(places) > replica.MaxReplicas {
		return Record{}, named(name, fmt.Errorf("%w: a volume must have one to %d replicas", replica.ErrTransition, replica.MaxReplicas))
	}
	var wanted [replica.MaxReplicas]Place
	var set replica.Set
	for i, p := range places {
		if err := p.check(); err != nil {
			return Record{}, named(name, err)
		}
		wanted[i] = p
		set |= replica.SetOf(replica.ID(i))
	}
	text, err := newObject(name, replica.NewWitness(set), wanted)
	if err != nil {
		return Record{}, named(name, err)
	}
	for attempt := 0; ; attempt++ {
		response, err := s.client.Send(ctx, http.MethodPost, collection, text)
		switch {
		case err == nil:
			r, err := s.accept(name, mark{}, response)
			if err == nil && (r.Witness != replica.NewWitness(set) || r.Places != wanted) {
				err = named(name, ErrAltered)
			}
			return r, err
		case errors.Is(err, kubernetes.ErrChanged): // it exists
			r, err := s.Get(ctx, name)
			switch {
			case err == nil && r.Deleting:
				err = named(name, ErrDeleting)
			case err == nil && r.Places != wanted:
				err = named(name, fmt.Errorf("%w: %v", ErrOther, r.Places))
			}
			return r, err
		case refused(err):
			return Record{}, named(name, err)
		}
		if s.pause(ctx, attempt) != nil {
			return Record{}, named(name, fmt.Errorf("%w: %w", ErrUnknown, err))
		}
	}
}

// Publish records which node may write from now on; an empty name means that no node may write. See
// [replica.Witness.Publish].
func (s *Store) Publish(ctx context.Context, name, node string) (Record, error) {
	return s.change(ctx, name, "", func(r *Record) error {
		r.Witness = r.Witness.Publish(node)
		return nil
	})
}

// Add adds a blank replica, which is not in sync, at a place. See [replica.Witness.Add].
func (s *Store) Add(ctx context.Context, name string, id replica.ID, place Place) (Record, error) {
	return s.change(ctx, name, "", func(r *Record) error {
		if err := place.check(); err != nil {
			return err
		}
		if r.Witness.Replicas.Has(id) && r.Places[id] == place {
			return nil
		}
		w, err := r.Witness.Add(id)
		if err != nil {
			return err
		}
		r.Witness, r.Places[id] = w, place
		return nil
	})
}

// Remove removes a replica from the volume. See [replica.Witness.Remove]. It fails if the replica
// with this number is no longer at the given place, because the number was reused.
func (s *Store) Remove(ctx context.Context, name string, id replica.ID, place Place) (Record, error) {
	remove := func(r *Record) (replica.Witness, error) {
		if r.Witness.Replicas.Has(id) && r.Places[id] != place {
			return r.Witness, fmt.Errorf("%w: replica %d is at %v", ErrOther, id, r.Places[id])
		}
		return r.Witness.Remove(id)
	}
	// Remove the replica from the status first: the log must not cover the next replica with this
	// number.
	r, err := s.change(ctx, name, "status", func(r *Record) error {
		w, err := remove(r)
		r.Witness.Logged, r.Witness.Discarded = w.Logged, w.Discarded
		return err
	})
	if err != nil {
		return r, err
	}
	return s.change(ctx, name, "", func(r *Record) error {
		w, err := remove(r)
		if err == nil && (w.Logged != r.Witness.Logged || w.Discarded != r.Witness.Discarded) {
			return fmt.Errorf("%w: the log covers replica %d, which is being removed, or an administrator has discarded it", replica.ErrTransition, id)
		}
		r.Witness = w
		if !w.Replicas.Has(id) {
			r.Places[id] = Place{}
		}
		return err
	})
}

// Keep records an administrator's decision to continue with one replica, and to discard all others.
// See [replica.Witness.Keep]. It fails if the replica with this number is not at the given place.
func (s *Store) Keep(ctx context.Context, name string, id replica.ID, place Place) (Record, error) {
	return s.change(ctx, name, "status", func(r *Record) error {
		if r.Places[id] != place {
			return fmt.Errorf("%w: replica %d is at %v", ErrOther, id, r.Places[id])
		}
		w, err := r.Witness.Keep(id)
		r.Witness = w
		return err
	})
}

// Change stores a transition that the writer makes. uid is the UID of the object that the writer is
// using. Change writes the witness even if the transition changes nothing, because the write proves
// that the witness has not changed since it was read. It may call transition several times, with
// newer witnesses.
func (s *Store) Change(ctx context.Context, name, uid string, transition func(replica.Witness) (replica.Witness, error)) (Record, error) {
	return s.change(ctx, name, "status", func(r *Record) error {
		if r.UID != uid {
			return fmt.Errorf("%w: its UID is %s, not %s", ErrReplaced, r.UID, uid)
		}
		w, err := transition(r.Witness)
		r.Witness = w
		return err
	})
}

// change reads the witness, modifies it with how, and stores the result. If another client has
// changed the witness in the meantime, it starts over. If the outcome of the write is unknown, it
// reads the witness again and repeats the write until the outcome is certain. part is the
// subresource to write, or an empty string.
func (s *Store) change(ctx context.Context, name, part string, how func(*Record) error) (Record, error) {
	var attempted *Record // the record of a write with an unknown outcome
	fail := func(r Record, err error) (Record, error) {
		if attempted != nil {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return r, err
	}
	for attempt := 0; ; attempt++ {
		r, err := s.Get(ctx, name)
		switch {
		case err != nil && (refused(err) || lasting(err)):
			return fail(Record{}, err)
		case err != nil:
		case attempted != nil && r.resourceVersion != attempted.resourceVersion && r.same(*attempted):
			return r, nil
		default:
			// If the resourceVersion is unchanged, a write with an unknown outcome may still be
			// executed later. The next write has the same resourceVersion, so only one of the two
			// succeeds.
			wanted := r
			if err := how(&wanted); err != nil {
				return fail(r, named(name, err))
			}
			if wanted.same(r) && part == "" {
				return r, nil
			}
			before := s.newest(name)
			var response []byte
			response, err = s.write(ctx, part, wanted)
			switch {
			case err == nil:
				stored, err := s.accept(name, before, response)
				if err == nil && !stored.same(wanted) {
					err = named(name, ErrAltered)
				}
				return stored, err
			case errors.Is(err, kubernetes.ErrChanged):
			case refused(err):
				return fail(Record{}, named(name, err))
			default:
				attempted = &wanted
			}
			err = named(name, err)
		}
		if s.pause(ctx, attempt) != nil {
			return fail(Record{}, err)
		}
	}
}

// lasting reports whether an error is permanent, so that another attempt would have the same
// result.
func lasting(err error) bool {
	return errors.Is(err, ErrUnreadable) || errors.Is(err, ErrOlder)
}

func (s *Store) write(ctx context.Context, part string, r Record) ([]byte, error) {
	path := pathOf(r.Name)
	if part != "" {
		path += "/" + part
	}
	text, err := r.encode()
	if err != nil {
		return nil, err
	}
	return s.client.Send(ctx, http.MethodPut, path, text)
}
