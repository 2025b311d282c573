package witness

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

// BeginDelete marks the witness as being deleted, and returns the witness, which exists until
// Delete removes it. BeginDelete fails with [ErrInUse] while the volume is published.
func (s *Store) BeginDelete(ctx context.Context, name string) (Record, error) {
	for attempt := 0; ; attempt++ {
		r, err := s.Get(ctx, name)
		switch {
		case err != nil && (refused(err) || lasting(err)):
			return Record{}, err
		case err == nil && r.Witness.Writer.Node != "":
			return r, named(name, fmt.Errorf("%w: %s", ErrInUse, r.Witness.Writer.Node))
		case err == nil && r.Deleting:
			return r, nil
		case err == nil:
			err = s.deleteOnce(ctx, r)
			if refused(err) && !errors.Is(err, kubernetes.ErrChanged) {
				return Record{}, named(name, err)
			}
		}
		// The next attempt determines whether the object is marked.
		if err != nil && !refused(err) && s.pause(ctx, attempt) != nil {
			return Record{}, named(name, fmt.Errorf("%w: %w", ErrUnknown, err))
		}
	}
}

// Delete deletes the witness. Call it after all replicas have been deleted. It succeeds if the
// witness does not exist.
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
		// The next attempt determines whether the object has been removed.
		if err != nil && !refused(err) && s.pause(ctx, attempt) != nil {
			return named(name, fmt.Errorf("%w: %w", ErrUnknown, err))
		}
	}
}

// deleteOnce requests the deletion of the object, or removes the finalizer if the deletion has
// already been requested.
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
