package witness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// Errors of a [Store].
var (
	// ErrUnknown means that the API did not respond to a write before the context ended, or that
	// the witness has changed again since: the change may have been stored, or may still be.
	ErrUnknown = errors.New("it is unknown whether the change of the witness was stored")
	// ErrNotInstalled means that the API does not have ReplicatedVolumes.
	ErrNotInstalled = errors.New("the Kubernetes API does not have the resource replicatedvolumes.spdkgate.io: install it from deploy/kubernetes/replication")
	// ErrNotFound means that there is no witness of this volume.
	ErrNotFound = errors.New("the volume has no witness")
	// ErrOlder means that a witness is older than one that this process has read before: the API
	// server's data were restored, or it returns old data.
	ErrOlder = errors.New("the witness is older than before: the API server's data was restored from a backup, or the API server returns old data")
	// ErrReplaced means that the witness is not the object that the caller has used so far.
	ErrReplaced = errors.New("the witness was deleted and created again, possibly from a backup")
	// ErrDeleting means that the volume of this name is being deleted.
	ErrDeleting = errors.New("the volume of this name is being deleted: delete it completely first")
	// ErrOther means that a volume of this name exists with replicas in other places.
	ErrOther = errors.New("a witness of this name has replicas in other places")
	// ErrInUse means that a volume cannot be deleted, because it is published to a node.
	ErrInUse = errors.New("the volume is published to a node")
	// ErrAltered means that the API server has stored something else than what was sent, such as an
	// object without the members that the installed resource definition lacks.
	ErrAltered = errors.New("the API server has stored a different witness than it received: install the resource definition of this version")
)

// A Store reads and changes witnesses. It is safe for concurrent use.
type Store struct {
	client *kubernetes.Client
	// pause is how long a change waits before it repeats a call. Tests replace it.
	pause func(ctx context.Context, attempt int) error

	mu   sync.Mutex
	seen map[string]mark // by name
}

// A mark is what a witness never falls behind.
type mark struct {
	uid               string
	epoch, generation uint64
}

// NewStore returns a store that calls the API with this client.
func NewStore(client *kubernetes.Client) *Store {
	return &Store{client: client, pause: pause, seen: map[string]mark{}}
}

func pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(min(50*time.Millisecond<<min(attempt, 10), 5*time.Second))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func pathOf(name string) string { return collection + "/" + url.PathEscape(name) }

// Get returns the witness of a volume as it is stored now.
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

// newest returns the newest state of a witness that this process has seen. A call that begins later
// must not return an older one.
func (s *Store) newest(name string) mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

// accept decodes a response, and refuses a witness that is older than before.
func (s *Store) accept(name string, before mark, text []byte) (Record, error) {
	r, err := decode(text)
	if err != nil {
		return Record{}, named(name, err)
	}
	if r.Name != name {
		return Record{}, named(name, fmt.Errorf("%w: it is the one of %s", ErrUnreadable, r.Name))
	}
	now := mark{r.UID, r.Witness.Epoch, r.Witness.Writer.Generation}
	if before.uid == now.uid && (now.epoch < before.epoch || now.generation < before.generation) {
		return Record{}, named(name, fmt.Errorf("%w: epoch %d and generation %d after %d and %d", ErrOlder, now.epoch, now.generation, before.epoch, before.generation))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.seen[name]; other.uid == now.uid {
		now.epoch, now.generation = max(now.epoch, other.epoch), max(now.generation, other.generation)
	}
	s.seen[name] = now
	return r, nil
}

// named adds the volume to an error, and the meaning that it has for a witness.
func named(name string, err error) error {
	switch {
	case errors.Is(err, kubernetes.ErrNoResource):
		err = fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	case errors.Is(err, kubernetes.ErrNotFound):
		err = fmt.Errorf("%w (%w)", ErrNotFound, err)
	}
	return fmt.Errorf("witness of volume %s: %w", name, err)
}

// refused reports whether the API server certainly did not execute a call.
func refused(err error) bool {
	for _, kind := range []error{kubernetes.ErrNoAccess, kubernetes.ErrForbidden, kubernetes.ErrNotFound, kubernetes.ErrChanged, kubernetes.ErrInvalid} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Create creates the witness of a volume whose replicas do not exist yet. If there is one already
// with the same places, which may come from an interrupted call, it returns that one.
func (s *Store) Create(ctx context.Context, name string, places ...Place) (Record, error) {
	if len(places) == 0 || len(places) > replica.MaxReplicas {
		return Record{}, named(name, fmt.Errorf("%w: it needs one to %d replicas", replica.ErrTransition, replica.MaxReplicas))
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

// Publish names the node that may write from now on; an empty name means none. See
// [replica.Witness.Publish].
func (s *Store) Publish(ctx context.Context, name, node string) (Record, error) {
	return s.change(ctx, name, "", func(r *Record) error {
		r.Witness = r.Witness.Publish(node)
		return nil
	})
}

// Add adds a replica in a place, which is blank and not in sync. See [replica.Witness.Add].
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

// Remove removes a replica from the volume. See [replica.Witness.Remove]. place guards against a
// replica that has received the number since.
func (s *Store) Remove(ctx context.Context, name string, id replica.ID, place Place) (Record, error) {
	remove := func(r *Record) (replica.Witness, error) {
		if r.Witness.Replicas.Has(id) && r.Places[id] != place {
			return r.Witness, fmt.Errorf("%w: replica %d is at %v", ErrOther, id, r.Places[id])
		}
		return r.Witness.Remove(id)
	}
	// The log must not cover the next replica with this number, so its status changes first.
	r, err := s.change(ctx, name, "status", func(r *Record) error {
		w, err := remove(r)
		r.Witness.Logged = w.Logged
		return err
	})
	if err != nil {
		return r, err
	}
	return s.change(ctx, name, "", func(r *Record) error {
		w, err := remove(r)
		if err == nil && w.Logged != r.Witness.Logged {
			return fmt.Errorf("%w: the log covers replica %d again", replica.ErrTransition, id)
		}
		r.Witness = w
		if !w.Replicas.Has(id) {
			r.Places[id] = Place{}
		}
		return err
	})
}

// Change stores a transition that the writer makes. uid is the identity of the object that the
// writer uses. The witness is written even if the transition changes nothing, which proves that it
// is still the same. transition can be called several times, with newer witnesses.
func (s *Store) Change(ctx context.Context, name, uid string, transition func(replica.Witness) (replica.Witness, error)) (Record, error) {
	return s.change(ctx, name, "status", func(r *Record) error {
		if r.UID != uid {
			return fmt.Errorf("%w: uid %s, not %s", ErrReplaced, r.UID, uid)
		}
		w, err := transition(r.Witness)
		r.Witness = w
		return err
	})
}

// change reads the witness, changes it, and stores it unless another change came between. If the
// outcome of the write is unknown, it reads the witness again, and repeats the write until it is
// certain. part is the subresource that is written, or an empty string.
func (s *Store) change(ctx context.Context, name, part string, how func(*Record) error) (Record, error) {
	var attempted *Record // by a write whose outcome is unknown
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
			// With an unchanged resourceVersion, a write of unknown outcome may still be executed.
			// The next one has the same resourceVersion, so only one of them succeeds.
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

// lasting reports whether another attempt would have the same result.
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

// Delete deletes the witness. Call it when no replica exists any more. A witness that does not
// exist is not an error.
func (s *Store) Delete(ctx context.Context, name string) error {
	for attempt := 0; ; attempt++ {
		r, err := s.Get(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil && (refused(err) || lasting(err)):
			return err
		case err == nil && r.Witness.Writer.Node != "":
			return named(name, fmt.Errorf("%w: %s", ErrInUse, r.Witness.Writer.Node))
		case err == nil:
			err = s.deleteOnce(ctx, r)
			if refused(err) && !errors.Is(err, kubernetes.ErrChanged) && !errors.Is(err, kubernetes.ErrNotFound) {
				return named(name, err)
			}
		}
		// The next attempt determines whether the object is gone.
		if err != nil && !refused(err) && s.pause(ctx, attempt) != nil {
			return named(name, fmt.Errorf("%w: %w", ErrUnknown, err))
		}
	}
}

// deleteOnce marks the object as deleted, or, if it is marked already, removes the finalizer.
func (s *Store) deleteOnce(ctx context.Context, r Record) error {
	if !r.Deleting {
		options, err := json.Marshal(map[string]any{
			"kind": "DeleteOptions", "apiVersion": "v1",
			"preconditions": map[string]string{"uid": r.UID, "resourceVersion": r.resourceVersion},
		})
		if err != nil {
			return err
		}
		_, err = s.client.Send(ctx, http.MethodDelete, pathOf(r.Name), options)
		return err
	}
	without := metadataJSON{Name: r.Name, UID: r.UID, ResourceVersion: r.resourceVersion}
	metadata, err := json.Marshal(without)
	if err != nil {
		return err
	}
	r.metadata = metadata
	_, err = s.write(ctx, "", r)
	return err
}
