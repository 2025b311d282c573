package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// surveyed contains what is read from the targets before a volume is created: their lvstores, and
// their volumes with the requested name.
type surveyed struct {
	stores  []placement.Store
	places  map[place]volume.Store
	targets map[string]*volume.Service
	volumes []located
}

// A place is an lvstore on a target.
type place struct{ target, store string }

// A located is a volume and its target.
type located struct {
	target *volume.Service
	volume.Volume
}

// survey queries targets in parallel for their lvstores, and for spec's volume. It fails if a
// target does not respond in time, because the volume may exist there.
func (c *Controller) survey(ctx context.Context, services []*volume.Service, spec volume.Spec) (surveyed, error) {
	answers := make([]surveyed, len(services))
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range services {
		g.Go(func() (err error) {
			answers[i], err = c.ask(ctx, s, spec)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return surveyed{}, err
	}
	return join(answers), nil
}

// surveyStores queries targets in parallel for their lvstores. It omits the targets that fail, and
// returns their errors.
func (c *Controller) surveyStores(ctx context.Context, services []*volume.Service, wanted class.Class) (surveyed, []error) {
	answers, failures := make([]surveyed, len(services)), make([]error, len(services))
	var g errgroup.Group
	for i, s := range services {
		g.Go(func() error {
			answers[i], failures[i] = c.ask(ctx, s, volume.Spec{Class: wanted})
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	return join(answers), slices.DeleteFunc(failures, func(err error) bool { return err == nil })
}

// ask queries one target for its lvstores, and for spec's volume if spec has a name.
func (c *Controller) ask(ctx context.Context, s *volume.Service, spec volume.Spec) (surveyed, error) {
	late := fmt.Errorf("target %s: %w within %s: nothing was created; try again", s.Name, errNoAnswer, c.targets.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.targets.timeout, &request.TargetError{Target: s.Name, Err: late})
	defer cancel()
	found, err := asked(ctx, s, spec)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNoAnswer) {
		return found, cause
	}
	return found, err
}

func asked(ctx context.Context, s *volume.Service, spec volume.Spec) (surveyed, error) {
	found := surveyed{places: map[place]volume.Store{}, targets: map[string]*volume.Service{s.Name: s}}
	stores, existing, err := s.Survey(ctx, spec)
	if err != nil {
		return found, err
	}
	if existing != nil {
		found.volumes = []located{{s, *existing}}
	}
	for _, st := range stores {
		room, err := s.LargestVolume(ctx, st, spec.Class.Thick)
		if err != nil {
			return found, err
		}
		found.stores = append(found.stores, placement.Store{
			Target: s.Name, Name: st.Name, FreeBytes: st.FreeBytes, TotalBytes: st.TotalBytes, RoomBytes: room, SmallestBytes: st.Size(1),
		})
		found.places[place{s.Name, st.Name}] = st
	}
	return found, nil
}

func join(answers []surveyed) surveyed {
	all := surveyed{places: map[place]volume.Store{}, targets: map[string]*volume.Service{}}
	for _, a := range answers {
		all.stores = append(all.stores, a.stores...)
		all.volumes = append(all.volumes, a.volumes...)
		maps.Copy(all.places, a.places)
		maps.Copy(all.targets, a.targets)
	}
	return all
}

// only returns the single volume that was found. If no volume was found, the error wraps
// [volume.ErrNotFound].
func (f surveyed) only(name string) (located, error) {
	switch len(f.volumes) {
	case 0:
		return located{}, volume.ErrNotFound
	case 1:
		return f.volumes[0], nil
	}
	slices.SortFunc(f.volumes, func(a, b located) int { return cmp.Compare(a.target.Name, b.target.Name) })
	return located{}, fmt.Errorf("%w: volume %q is on the targets %s and %s: rename or delete one of them", volume.ErrIncompatible, name, f.volumes[0].target.Name, f.volumes[1].target.Name)
}

// suitForRawBlock returns the candidates that allow raw block volumes. If there are none, it fails
// like [volume.Service.CheckRawBlock].
func suitForRawBlock(ctx context.Context, services []*volume.Service, candidates []placement.Target) (suitable []placement.Target, err error) {
	refused := make([]error, len(candidates))
	var asking sync.WaitGroup
	for i, t := range candidates {
		service := services[slices.IndexFunc(services, func(s *volume.Service) bool { return s.Name == t.Name })]
		asking.Go(func() { refused[i] = service.CheckRawBlock(ctx) })
	}
	asking.Wait()
	for i, t := range candidates {
		switch err := refused[i]; {
		case err == nil:
			suitable = append(suitable, t)
		case !errors.Is(err, volume.ErrLoads):
			return nil, err
		}
	}
	if len(suitable) == 0 {
		return nil, errors.Join(refused...)
	}
	return suitable, nil
}

// createInFirst creates the volume in the first of the candidates' lvstores that has space for it.
// After any failure other than a lack of space, createInFirst does not try another lvstore, because
// the volume may have been created.
func (f surveyed) createInFirst(ctx context.Context, candidates []placement.Target, spec volume.Spec, where placement.Accessibility) (located, error) {
	byName := map[string]placement.Target{}
	for _, t := range candidates {
		byName[t.Name] = t
	}
	stores, err := placement.Stores(slices.DeleteFunc(slices.Clone(f.stores), func(s placement.Store) bool {
		_, ok := byName[s.Target]
		return !ok
	}), spec.Class)
	if err != nil {
		return located{}, err
	}
	var full []error
	for _, s := range placement.Order(stores, spec.Name, spec.Class.Strategy, func(target string) int { return where.Rank(byName[target]) }) {
		target := f.targets[s.Target]
		v, err := target.Create(ctx, f.places[place{s.Target, s.Name}], spec)
		if err == nil {
			return located{target, v}, nil
		}
		if !errors.Is(err, volume.ErrNoSpace) && !errors.Is(err, volume.ErrOutOfRange) {
			return located{}, err
		}
		full = append(full, err)
	}
	return located{}, fmt.Errorf("no allowed lvstore has room for volume %q: %w", spec.Name, errors.Join(full...))
}
