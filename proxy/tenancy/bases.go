package tenancy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Hosts can write anything to logical volumes. If the target loads an lvstore or a RAID from a
// logical volume, a host may have chosen its names and UUIDs. Therefore, a bdev or lvstore that is
// based on a logical volume, at any depth, belongs to no tenant.

// maxDepth is the maximum number of layers of bdevs that are examined. A bdev with more layers
// counts as based on a volume.
const maxDepth = 8

// isVolumeName reports whether a bdev with this name may be a logical volume. The name of a volume
// is its UUID, and its alias is LVSTORE/LVOL.
func isVolumeName(name string) bool {
	return rpcschema.LooksLikeUUID(name) || strings.Contains(name, "/")
}

// readBases reads the names of a bdev's base bdevs from its driver-specific data.
func (b *bdev) readBases(t *jsonwalk.Text, i int) (end int) {
	switch t.TypeAt(i) {
	case jsonwalk.Object:
		w := t.Walk(i)
		for w.Next() {
			switch w.Name {
			case "base_bdev", "base_bdev_name", "cache", "cache_device", "core_device":
				if t.TypeAt(w.Value) == jsonwalk.String {
					var base string
					w.End = b.readText(t, w.Value, &base)
					b.bases = append(b.bases, base)
					continue
				}
				w.End = b.readBases(t, w.Value)
			case "base_bdevs_list":
				w.End = b.readBaseList(t, w.Value)
			default:
				w.End = b.readBases(t, w.Value)
			}
		}
		return w.End
	case jsonwalk.Array:
		w := t.Walk(i)
		for w.Next() {
			w.End = b.readBases(t, w.Value)
		}
		return w.End
	}
	return t.Skip(i)
}

// readBaseList reads the names of a RAID's base bdevs. A missing base bdev has no name.
func (b *bdev) readBaseList(t *jsonwalk.Text, i int) (end int) {
	if t.TypeAt(i) != jsonwalk.Array {
		return t.Skip(i)
	}
	w := t.Walk(i)
	for w.Next() {
		w.End = b.readMember(t, w.Value, "name", func(t *jsonwalk.Text, i int) int {
			if t.TypeAt(i) != jsonwalk.String {
				return t.Skip(i)
			}
			var base string
			end := b.readText(t, i, &base)
			b.bases = append(b.bases, base)
			return end
		})
	}
	return w.End
}

// bases caches, for one call, the base bdevs of other bdevs.
type bases map[string][]string

// noteBases caches the base bdevs in a list of bdevs.
func (v *ownershipCheck) noteBases(answer string) error {
	// most lists contain no bdev with a base bdev
	if !strings.Contains(answer, "base_bdev") && !strings.Contains(answer, "cache_device") {
		return nil
	}
	if v.bases == nil {
		v.bases = bases{}
	}
	return eachBdev(answer, func(b *bdev) error {
		if !b.lvol {
			v.bases[b.name] = append([]string{}, b.bases...)
		}
		return nil
	})
}

// onVolume reports whether one of the bdevs is a logical volume or is based on one. It queries the
// target for bdevs that are not cached.
func (v *ownershipCheck) onVolume(ctx context.Context, names []string, depth int) (bool, error) {
	for _, name := range names {
		if isVolumeName(name) || depth > maxDepth {
			return true, nil
		}
		below, err := v.basesOf(ctx, name)
		if err != nil {
			return true, err
		}
		if on, err := v.onVolume(ctx, below, depth+1); on || err != nil {
			return true, err
		}
	}
	return false, nil
}

// basesOf returns the base bdevs of a bdev. During a call, it queries the target only once for each
// existing bdev or, if the call needs many bdevs, for all bdevs.
func (v *ownershipCheck) basesOf(ctx context.Context, name string) (below []string, err error) {
	below, known := v.bases[name]
	if known || v.listed {
		return below, nil
	}
	if v.asked++; v.asked > asksBeforeListing && v.scope != nil {
		_, err := v.list(ctx)
		return v.bases[name], err
	}
	if below, err = askBases(ctx, v.ask, name); err != nil {
		return nil, err
	}
	if below != nil { // a missing bdev may exist by the time the result is filtered
		if v.bases == nil {
			v.bases = bases{}
		}
		v.bases[name] = below
	}
	return below, nil
}

// askBases queries the target for the base bdevs of a bdev. If the bdev does not exist, it returns
// nil.
func askBases(ctx context.Context, ask Ask, name string) (names []string, err error) {
	answer, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, notExecuted(err)
	}
	names = []string{}
	err = eachBdev(string(answer), func(b *bdev) error {
		if names = append(names, b.bases...); b.lvol {
			names = append(names, b.name)
		}
		return nil
	})
	return names, err
}

// written reports whether a host may have created the named object by writing to a volume, which is
// possible if the lvstore or bdev is based on a logical volume.
func (v *ownershipCheck) written(ctx context.Context, kind, name string) (bool, error) {
	store, _, isAlias := strings.Cut(name, "/")
	switch {
	case kind == "lvstore", kind == "bdev" && isAlias:
		list, err := v.scope.tenancy.stores.list(ctx, v.ask, time.Time{})
		for _, s := range list {
			if s.Name == store && s.OnVolume {
				return true, err
			}
		}
		return false, err
	case kind == "bdev" && !rpcschema.LooksLikeUUID(name):
		return v.onVolume(ctx, []string{name}, 0)
	}
	return false, nil
}

// noteVolumes marks the lvstores that are based on logical volumes.
func (l *lvstores) noteVolumes(ctx context.Context, ask Ask) error {
	v := &ownershipCheck{ask: ask}
	for id, s := range l.byUUID {
		s.OnVolume = true
		if s.Base != "" {
			var err error
			if s.OnVolume, err = v.onVolume(ctx, []string{s.Base}, 0); err != nil {
				return err
			}
		}
		l.byUUID[id] = s
	}
	return nil
}
