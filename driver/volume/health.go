package volume

import (
	"context"
	"errors"
	"fmt"
)

// Reasons of conditions.
const (
	ReasonStoreFull    = "LvstoreFull"
	ReasonStoreMissing = "LvstoreMissing"
	ReasonNotLoaded    = "VolumeNotLoaded"
	// ReasonMissing is not used by [Service.Health], which fails with ErrNotFound instead.
	ReasonMissing = "VolumeMissing"
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
	switch {
	case errors.Is(err, ErrStoreMissing):
		return Health{id, []Condition{{Inaccessible: true, Reason: ReasonStoreMissing, Message: err.Error()}}}, nil
	case errors.Is(err, ErrDegraded):
		return Health{id, []Condition{{Inaccessible: true, Reason: ReasonNotLoaded, Message: err.Error()}}}, nil
	case err != nil:
		return Health{}, err
	}
	st, err := s.store(ctx, v.Store)
	if err != nil {
		return Health{}, err
	}
	return healthIn(st, v), nil
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
		h.Conditions = append(h.Conditions, Condition{Reason: ReasonStoreFull, Message: fmt.Sprintf("lvstore %s has no free space: writes to parts of %s that were never written fail. Delete volumes or snapshots, or enlarge the lvstore", st.Name, v)})
	}
	return h
}
