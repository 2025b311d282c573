package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/tenancy/globs"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An ownershipCheck determines, for one call, which objects belong to the tenant.
type ownershipCheck struct {
	scope  *Scope
	ask    Ask
	bdevs  map[string]bool // whether the bdev belongs to the tenant, by UUID
	absent map[string]bool // UUIDs that are not in use
	listed bool            // whether bdevs contains all bdevs of the target
	bases  bases
	fresh  bool      // the call changes objects, so cached volumes must not be used
	stale  bool      // the call only reads or deletes, so it may name a subsystem whose volume is gone
	asked  int       // number of bdevs that were queried one by one
	began  time.Time // when the call, or its result, arrived

	// While filtering is set, the check collects unknown UUIDs in order to query them together.
	filtering bool
	unknown   []string
}

// owns reports whether an object named by the client or by SPDK belongs to the tenant. Only names
// that are or contain UUIDs require a query to the target. For all other names, the spelling
// determines the owner, so the result does not depend on whether an object exists.
func (v *ownershipCheck) owns(ctx context.Context, kind, name string) (bool, error) {
	if !plain(name) {
		return false, nil
	}
	switch {
	case kind == "lvstore-uuid":
		owner, err := v.storeOwner(ctx, name)
		return err == nil && owner == v.scope, err
	case kind == "bdev" && rpcschema.LooksLikeUUID(name):
		return v.ownsUUID(ctx, name)
	case v.scope.dependsOnVolume(kind, name):
		id := strings.TrimPrefix(name, v.scope.VolumeNQN)
		own, err := v.ownsUUID(ctx, id)
		return own || err == nil && v.stale && v.isAbsent(id) && v.scope.changedAlone(name), err
	}
	return v.scope.ownsNamed(kind, name), nil
}

// dependsOnVolume reports whether name contains the UUID of a volume and names a subsystem that
// belongs to the volume's owner.
func (s *Scope) dependsOnVolume(kind, name string) bool {
	id, ok := strings.CutPrefix(name, s.VolumeNQN)
	return kind == "nqn" && s.VolumeNQN != "" && ok && rpcschema.IsCanonicalUUID(id)
}

// ownsUUID reports whether a bdev named by UUID belongs to the tenant. Its owner is that of its
// lvstore or, if it has no lvstore, that of its other name.
func (v *ownershipCheck) ownsUUID(ctx context.Context, name string) (bool, error) {
	if own, known := v.bdevs[name]; known || v.listed {
		return own, nil
	}
	lvs := v.scope.tenancy.volumes.of(name)
	if v.filtering {
		if lvs == "" {
			v.unknown = append(v.unknown, name)
			return false, nil
		}
		owner, err := v.storeOwner(ctx, lvs)
		v.note(name, owner == v.scope)
		return owner == v.scope, err
	}
	// Before the call, another tenant's volume must be indistinguishable from a missing volume,
	// even by the duration of the look-up. Therefore, the cache is used only for the tenant's own
	// volumes, and all other names cause the same queries.
	list, err := v.scope.tenancy.stores.list(ctx, v.ask, time.Time{})
	if err != nil {
		return false, err
	}
	if lvs != "" && !v.fresh && v.ownerIn(list, lvs) == v.scope {
		return true, nil
	}
	var params map[string]any
	if v.asked++; v.asked <= asksBeforeListing {
		params = map[string]any{"name": name}
	}
	answer, err := v.ask(ctx, "bdev_get_bdevs", params)
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		v.noteAbsent(name)
		_, err := v.storeOwner(ctx, "") // the same queries as for another tenant's volume
		return false, err
	}
	if err != nil {
		return false, notExecuted(err)
	}
	if err := v.learn(ctx, string(answer)); err != nil {
		return false, err
	}
	v.listed = v.listed || params == nil
	return v.bdevs[name], nil
}

// asksBeforeListing is how many bdevs are queried one by one before all bdevs are listed. Listing
// all bdevs delays everything else on the target.
const asksBeforeListing = 4

// resolve concurrently queries all unknown bdevs named in a result.
func (v *ownershipCheck) resolve(ctx context.Context) error {
	slices.Sort(v.unknown)
	names := slices.Compact(v.unknown)
	v.unknown = nil
	if v.asked += len(names); v.asked > asksBeforeListing {
		_, err := v.list(ctx)
		return err
	}
	answers, errs, panics := make([]json.RawMessage, len(names)), make([]error, len(names)), make([]any, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			defer func() { panics[i] = recover() }() // a panic in a goroutine would end the process
			answers[i], errs[i] = v.ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
		})
	}
	all.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	for i, name := range names {
		switch {
		case errors.Is(errs[i], spdkrpc.NoSuchDevice):
			v.noteAbsent(name)
		case errs[i] != nil:
			return notExecuted(errs[i])
		default:
			if err := v.learn(ctx, string(answers[i])); err != nil {
				return err
			}
		}
		if _, known := v.bdevs[name]; !known {
			v.note(name, false)
		}
	}
	return nil
}

// list queries all bdevs.
func (v *ownershipCheck) list(ctx context.Context) (answer string, err error) {
	text, err := v.ask(ctx, "bdev_get_bdevs", nil)
	if err != nil {
		return "", notExecuted(err)
	}
	v.listed = true
	return string(text), v.learn(ctx, string(text))
}

// note records whether a UUID belongs to the tenant. The UUID belongs to the tenant only if every
// record says so.
func (v *ownershipCheck) note(name string, own bool) {
	if v.bdevs == nil {
		v.bdevs = map[string]bool{}
	}
	before, known := v.bdevs[name]
	v.bdevs[name] = own && (before || !known)
	delete(v.absent, name)
}

// noteAbsent records that a UUID is not in use.
func (v *ownershipCheck) noteAbsent(name string) {
	v.note(name, false)
	if v.absent == nil {
		v.absent = map[string]bool{}
	}
	v.absent[name] = true
}

// isAbsent reports whether the target has reported that a UUID is not in use.
func (v *ownershipCheck) isAbsent(name string) bool {
	_, known := v.bdevs[name]
	return v.absent[name] || v.listed && !known
}

// learn records the owners of the bdevs in a list that are named by UUID. For other names, the
// spelling determines the owner.
func (v *ownershipCheck) learn(ctx context.Context, answer string) error {
	var locations [][2]string
	defer func() { v.scope.tenancy.volumes.learn(locations, v.began) }()
	if err := v.noteBases(answer); err != nil {
		return err
	}
	return eachBdev(answer, func(b *bdev) error {
		own, err := v.ownsBdev(ctx, b)
		if err != nil {
			return err
		}
		if b.lvol && !b.ambiguous && rpcschema.LooksLikeUUID(b.name) && b.store != "" {
			locations = append(locations, [2]string{b.name, b.store})
		}
		v.noteUUID(b.name, own)
		v.noteUUID(b.uuid, own)
		for _, alias := range b.aliases {
			v.noteUUID(alias, own)
		}
		return nil
	})
}

func (v *ownershipCheck) noteUUID(name string, own bool) {
	if rpcschema.LooksLikeUUID(name) {
		v.note(name, own)
	}
}

// learnVolumes records the owners of the volumes in a list, including volumes without a bdev.
func (v *ownershipCheck) learnVolumes(ctx context.Context, answer string) error {
	var locations [][2]string
	defer func() { v.scope.tenancy.volumes.learn(locations, v.began) }()
	return eachVolume(answer, func(volume, lvs string) error {
		if rpcschema.LooksLikeUUID(volume) && lvs != "" {
			locations = append(locations, [2]string{volume, lvs})
		}
		owner, err := v.storeOwner(ctx, lvs)
		v.note(volume, owner == v.scope)
		return err
	})
}

// ownsBdev reports whether a bdev belongs to the tenant. For a volume, the lvstore determines the
// owner; for any other bdev, the name does.
func (v *ownershipCheck) ownsBdev(ctx context.Context, b *bdev) (bool, error) {
	switch {
	case b.ambiguous:
		return false, nil
	case b.lvol:
		owner, err := v.storeOwner(ctx, b.store)
		return owner == v.scope, err
	}
	if !globs.MatchesAny(v.scope.Bdevs, b.name) {
		return false, nil
	}
	on, err := v.onVolume(ctx, b.bases, 0)
	return !on, err
}

// storeOwner returns the tenant that owns an lvstore, or nil if there is none. Before the call, it
// uses the cache only for the tenant's own lvstores; while a result is being filtered, it uses the
// cache for all lvstores.
func (v *ownershipCheck) storeOwner(ctx context.Context, id string) (*Scope, error) {
	list, err := v.scope.tenancy.stores.list(ctx, v.ask, time.Time{})
	if err != nil {
		return nil, err
	}
	owner := v.ownerIn(list, id)
	if _, known := list[rpcschema.CanonicalUUID(id)]; owner == v.scope || known && v.filtering {
		return owner, nil
	}
	if list, err = v.scope.tenancy.stores.list(ctx, v.ask, v.began); err != nil {
		return nil, err
	}
	return v.ownerIn(list, id), nil
}

func (v *ownershipCheck) ownerIn(list map[string]store, id string) *Scope {
	if list[rpcschema.CanonicalUUID(id)].OnVolume {
		return nil
	}
	return v.scope.tenancy.byLVStore[list[rpcschema.CanonicalUUID(id)].Name]
}

// notExecuted converts the error of a query before the call to an error that says that the call was
// not executed.
func notExecuted(err error) error {
	if errors.Is(err, spdkrpc.OutcomeUnknown) {
		return &spdkrpc.Error{Method: "bdev_get_bdevs", Kind: spdkrpc.Unreachable, Message: "the target did not report in time who owns the object"}
	}
	return err
}
