package placement

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// A Placed volume knows its target.
type Placed struct {
	Target string
	volume.Volume
}

// A place is an lvstore of a target.
type place struct {
	target *volume.Service
	store  volume.Store
}

// Create returns the empty volume that spec asks for, from wherever it is, or makes it. A target that cannot be asked is
// an error and nothing is made: the volume may be there.
func Create(ctx context.Context, targets []*volume.Service, p class.Class, spec volume.Spec) (Placed, error) {
	targets, err := narrow(p, targets)
	if err != nil {
		return Placed{}, err
	}
	places, found, err := search(ctx, targets, p, spec.Name)
	switch {
	case err != nil:
		return Placed{}, err
	case len(found) > 1:
		return Placed{}, fmt.Errorf("%w: volume %q is on the targets %s and %s: rename or delete one of them", volume.ErrIncompatible, spec.Name, found[0].target.Name, found[1].target.Name)
	case len(found) == 1:
		f := found[0]
		return Placed{f.target.Name, f.volume}, f.target.Matches(ctx, f.volume, spec, volume.Origin{})
	}
	var full []error
	for _, pl := range order(places, spec.Name) {
		v, err := pl.target.Create(ctx, pl.store, spec)
		if err == nil {
			return Placed{pl.target.Name, v}, nil
		}
		if !errors.Is(err, volume.ErrNoSpace) && !errors.Is(err, volume.ErrOutOfRange) {
			return Placed{}, err
		}
		full = append(full, err)
	}
	return Placed{}, fmt.Errorf("no lvstore can take volume %q: %w", spec.Name, errors.Join(full...))
}

// Clone returns the volume that spec asks for with the contents of from. It lies where its origin does.
func Clone(ctx context.Context, target *volume.Service, p class.Class, from volume.Origin, spec volume.Spec) (Placed, error) {
	if spec.Class.Thick {
		return Placed{}, fmt.Errorf("%w: thin is false, and SPDK makes clones and restored volumes thin: use a StorageClass with thin: true", class.ErrParameter)
	}
	if p.Target != "" && p.Target != target.Name {
		return Placed{}, fmt.Errorf("%w: target is %q, and the source lies on target %q, where its clones stay", class.ErrParameter, p.Target, target.Name)
	}
	if p.Store != "" {
		source, err := target.Get(ctx, from.UUID)
		if err != nil {
			return Placed{}, err
		}
		if source.Store != p.Store {
			return Placed{}, fmt.Errorf("%w: lvstore is %q, and the source lies in lvstore %q, where its clones stay", class.ErrParameter, p.Store, source.Store)
		}
	}
	v, err := target.Clone(ctx, from, spec)
	return Placed{target.Name, v}, err
}

// A Capacity is what can still be made.
type Capacity struct {
	// FreeBytes are free in all; MaxBytes is the size of the largest volume that would be taken now, MinBytes of the smallest.
	FreeBytes, MaxBytes, MinBytes int64
}

// GetCapacity tells what can be made with the parameters.
func GetCapacity(ctx context.Context, targets []*volume.Service, p class.Class) (Capacity, error) {
	targets, err := narrow(p, targets)
	if err != nil {
		return Capacity{}, err
	}
	places, _, err := search(ctx, targets, p, "")
	var c Capacity
	for _, pl := range places {
		c.FreeBytes += pl.store.FreeBytes
		if pl.store.FreeBytes == 0 {
			continue
		}
		largest := pl.store.FreeBytes
		if !p.Thick {
			largest = pl.store.TotalBytes
		}
		c.MaxBytes = max(c.MaxBytes, largest)
		if smallest := pl.store.Size(1); c.MinBytes == 0 || smallest < c.MinBytes {
			c.MinBytes = smallest
		}
	}
	return c, err
}

func narrow(p class.Class, targets []*volume.Service) ([]*volume.Service, error) {
	if p.Target == "" {
		return targets, nil
	}
	for _, t := range targets {
		if t.Name == p.Target {
			return []*volume.Service{t}, nil
		}
	}
	return nil, fmt.Errorf("%w: target is %q, which config.json does not have", class.ErrParameter, p.Target)
}

type found struct {
	target *volume.Service
	volume volume.Volume
}

// search asks all targets side by side for their lvstores, and for the volume if name is not empty.
func search(ctx context.Context, targets []*volume.Service, p class.Class, name string) (places []place, volumes []found, err error) {
	type answer struct {
		stores []volume.Store
		volume *volume.Volume
	}
	answers := make([]answer, len(targets))
	g, ctx := errgroup.WithContext(ctx)
	for i, t := range targets {
		g.Go(func() error {
			stores, err := t.Stores(ctx)
			if err != nil {
				return err
			}
			answers[i].stores = stores
			if name == "" {
				return nil
			}
			v, err := t.Find(ctx, stores, name)
			if errors.Is(err, volume.ErrNotFound) {
				return nil
			}
			answers[i].volume = &v
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for i, t := range targets {
		if v := answers[i].volume; v != nil {
			volumes = append(volumes, found{t, *v})
		}
		for _, st := range answers[i].stores {
			if p.Store == "" || p.Store == st.Name {
				places = append(places, place{t, st})
			}
		}
	}
	if len(places) == 0 {
		return nil, nil, fmt.Errorf("%w: no target has an lvstore %q that the driver may use", class.ErrParameter, p.Store)
	}
	return places, volumes, nil
}

// order puts the places into the order in which they are tried. Each draws a number from the volume's name and its own,
// weighted by its free space (rendezvous hashing): volumes spread in proportion to free space, even thin ones, which
// take none when they are made, and a repeated call tries the places in the same order.
func order(places []place, name string) []place {
	score := func(pl place) float64 {
		sum := sha256.Sum256([]byte(pl.target.Name + "\x00" + pl.store.Name + "\x00" + name))
		u := (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53) // in (0, 1)
		return float64(pl.store.FreeBytes) / -math.Log(u)
	}
	return slices.SortedFunc(slices.Values(places), func(a, b place) int {
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(a.target.Name, b.target.Name), cmp.Compare(a.store.Name, b.store.Name))
	})
}
