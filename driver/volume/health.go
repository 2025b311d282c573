package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A Condition is a problem that the target reports for a volume.
type Condition struct {
	// Inaccessible means that the volume cannot be read or written. If it is false, the volume is
	// usable but has a problem.
	Inaccessible bool
	Reason       string // in CamelCase, for machines
	Message      string // problem and remedy, for people
}

// A Health lists the problems of a volume. If Conditions is empty, the volume has no known
// problems.
type Health struct {
	UUID       string
	Conditions []Condition
}

// Health returns a volume's problems. If the target does not respond, Health returns an error
// instead, because hosts may still be able to reach the volume.
func (s *Service) Health(ctx context.Context, id string) (Health, error) {
	v, err := s.GetVolume(ctx, id)
	if c, ok := conditionOf(err); ok && !errors.Is(err, ErrNotFound) {
		return Health{id, []Condition{c}}, nil
	}
	if err != nil {
		return Health{}, err
	}
	st, err := s.store(ctx, v.Store)
	if err != nil {
		return Health{}, err
	}
	return healthIn(st, v), nil
}

// conditionOf converts an error of GetVolume that describes the state of the volume.
func conditionOf(err error) (Condition, bool) {
	c := Condition{Inaccessible: true}
	switch {
	case errors.Is(err, ErrStoreMissing):
		c.Reason = "LvstoreMissing"
	case errors.Is(err, ErrDegraded):
		c.Reason = "VolumeNotLoaded"
	case errors.Is(err, ErrNotFound):
		c.Reason = "VolumeMissing"
	default:
		return Condition{}, false
	}
	c.Message = err.Error()
	return c, true
}

// HealthEach returns the health of several volumes by UUID, including volumes that do not exist. It
// omits volumes whose state it cannot determine, for example because the target does not respond,
// and returns one of these errors.
func (s *Service) HealthEach(ctx context.Context, ids []string) (map[string]Health, error) {
	stores, err := s.Stores(ctx)
	if err != nil && !errors.Is(err, ErrStoreMissing) { // the volumes of the other lvstores can be read
		return nil, err
	}
	all := make(map[string]Health, len(ids))
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(AskOnce(ctx))
	g.SetLimit(inFlight)
	for _, id := range ids {
		g.Go(func() error {
			h := Health{UUID: id}
			v, err := s.GetVolume(ctx, id)
			if err == nil {
				st, missing := s.storeOf(stores, v.Store)
				h.Conditions, err = healthIn(st, v).Conditions, missing
			}
			c, ok := conditionOf(err)
			switch {
			case ok:
				h.Conditions = []Condition{c}
			case errors.Is(err, ErrWrongKind): // a volume that an administrator has registered with a wrong handle
				return nil
			case err != nil:
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			all[id] = h
			return nil
		})
	}
	return all, g.Wait()
}

// ListHealth lists the volumes with known problems.
func (s *Service) ListHealth(ctx context.Context, p Page) (adverse []Health, next string, err error) {
	stores, err := s.Stores(ctx)
	if err != nil {
		return nil, "", err
	}
	byName := make(map[string]Store, len(stores))
	for _, st := range stores {
		byName[st.Name] = st
	}
	volumes, next, err := s.List(ctx, p)
	if err != nil {
		return nil, "", err
	}
	for _, v := range volumes {
		h, err := s.HealthOf(ctx, v, byName)
		if errors.Is(err, ErrNotFound) {
			continue // the volume was deleted in the meantime
		}
		if err != nil {
			return nil, "", err
		}
		if len(h.Conditions) > 0 {
			adverse = append(adverse, h)
		}
	}
	return adverse, next, nil
}

// HealthOf returns the problems of a listed volume. stores contains the loaded lvstores by name.
// HealthOf makes a call to the target only if the volume has no bdev or its lvstore is not loaded.
func (s *Service) HealthOf(ctx context.Context, v Volume, stores map[string]Store) (Health, error) {
	st, known := stores[v.Store]
	if !known || v.SizeBytes == 0 { // SPDK reports no size for a volume without a bdev
		return s.Health(ctx, v.UUID)
	}
	return healthIn(st, v), nil
}

// healthIn returns the problems of a volume that can be derived from the state of its lvstore.
func healthIn(st Store, v Volume) Health {
	h := Health{UUID: v.UUID}
	if v.Thin && st.FreeBytes == 0 {
		h.Conditions = append(h.Conditions, Condition{Reason: "LvstoreFull", Message: fmt.Sprintf("lvstore %s has no free space: writes to parts of %s that were never written fail. Delete volumes or snapshots, or enlarge the lvstore", st.Name, v)})
	}
	return h
}
