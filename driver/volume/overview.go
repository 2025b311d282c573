package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Overview contains the lvstores and lvols of a target that were listed at one time. A few calls
// are enough to read it, however many volumes there are.
type Overview struct {
	target string
	stores map[string]Store            // by name
	lvols  map[string]spdkrpc.LvolInfo // by UUID
	// incomplete reports whether an expected lvstore is not loaded.
	incomplete bool
	// excluded contains the names of loaded lvstores that the driver must not use.
	excluded map[string]bool
}

// Overview lists the lvstores that the driver may use, and their lvols.
func (s *Service) Overview(ctx context.Context) (Overview, error) {
	o := Overview{target: s.Name, stores: map[string]Store{}, lvols: map[string]spdkrpc.LvolInfo{}, excluded: map[string]bool{}}
	stores, err := s.Stores(ctx)
	if o.incomplete = errors.Is(err, ErrStoreMissing); err != nil && !o.incomplete {
		return o, err
	}
	all, listing := s.lvstores(ctx)
	if listing != nil {
		return o, fmt.Errorf("target %s: list lvstores: %w", s.Name, listing)
	}
	for _, l := range all {
		usable := slices.ContainsFunc(stores, func(st Store) bool { return st.UUID == l.UUID })
		if s.permits(l.Name) && !usable && o.incomplete && len(stores) == 0 {
			return o, err // the lvstores that may be used are unknown
		}
		o.excluded[l.Name] = !usable
	}
	lvols, err := s.lvolsIn(ctx, stores)
	if err != nil {
		return o, err
	}
	for _, st := range stores {
		o.stores[st.Name] = st
	}
	for _, l := range lvols {
		o.lvols[l.UUID] = l
	}
	return o, nil
}

// Has reports whether the target has a volume.
func (o Overview) Has(id string) bool {
	_, ok := o.lvols[id]
	return ok
}

// Problem returns the most severe problem of a volume. If there is none, the condition is empty. If
// the driver must not use the volume's lvstore, the problem is unknown. store is the lvstore in
// which the volume was created; it may be empty. Users of the volume may read the message, which
// therefore mentions no other volumes and lvstores.
func (o Overview) Problem(id, store string) (problem Condition, known bool) {
	problem = o.problem(id, store)
	return problem, o.Has(id) || !o.excluded[store]
}

func (o Overview) problem(id, store string) Condition {
	l, exists := o.lvols[id]
	_, loaded := o.stores[store]
	switch {
	case exists && l.IsDegraded:
		return Condition{Inaccessible: true, Reason: ReasonNotLoaded, Message: fmt.Sprintf("storage server %s lists this volume, but cannot load it, so it cannot be used. An administrator must restore what the volume is based on", o.target)}
	case exists && l.IsThinProvisioned && o.stores[l.Lvs.Name].FreeBytes == 0:
		return Condition{Reason: ReasonStoreFull, Message: fmt.Sprintf("lvstore %s of storage server %s has no free space: writes to parts of this volume that were never written fail. An administrator must free space or enlarge the lvstore", l.Lvs.Name, o.target)}
	case exists:
		return Condition{}
	case store != "" && !loaded:
		return Condition{Inaccessible: true, Reason: ReasonStoreMissing, Message: fmt.Sprintf("lvstore %s, which contains this volume, is not loaded on storage server %s, or is hidden from the driver, so the volume cannot be used. An administrator must restore the lvstore's disk", store, o.target)}
	case store == "" && o.incomplete:
		return Condition{Inaccessible: true, Reason: ReasonStoreMissing, Message: fmt.Sprintf("an lvstore that may contain this volume is not loaded on storage server %s, so the volume cannot be used. An administrator must restore the lvstore's disk", o.target)}
	}
	return Condition{Inaccessible: true, Reason: ReasonMissing, Message: fmt.Sprintf("storage server %s does not have this volume, or hides it from the driver, so the volume cannot be used. An administrator must find out whether it was deleted", o.target)}
}
