package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A ownershipCheck is what one call learns of whose the objects of the target are.
type ownershipCheck struct {
	scope  *Scope
	ask    Ask
	bdevs  map[string]bool // by every UUID: theirs?
	listed bool            // bdevs has all that there are
	asked  int
	began  time.Time // when the call, or its result, came

	// In a result everything is asked about at once: what is not known is noted.
	filtering bool
	unknown   []string
}

// owns decides whether an object that the client, or SPDK, names is theirs.
// Only names that are UUIDs, or hold one, take a question to the target; all others are
// decided by their spelling, and so alike whether or not they exist.
func (v *ownershipCheck) owns(ctx context.Context, kind, name string) (bool, error) {
	if !plain(name) {
		return false, nil
	}
	switch {
	case kind == "lvstore-uuid":
		owner, err := v.storeOwner(ctx, name)
		return err == nil && owner == v.scope, err
	case kind == "bdev" && looksLikeUUID(name):
		return v.ownsUUID(ctx, name)
	case kind == "nqn" && v.scope.VolumeNQN != "":
		if id, ok := strings.CutPrefix(name, v.scope.VolumeNQN); ok && id == canonical(id) {
			return v.ownsUUID(ctx, id)
		}
	}
	return v.scope.ownsNamed(kind, name), nil
}

// ownsUUID decides on a bdev named by UUID: it is its lvstore's, or else the
// name's that it has besides.
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
	// Before the call nothing may tell somebody else's volume from none, the time
	// that it takes neither: what is remembered counts only where it says that it
	// is theirs, and all else takes the same questions.
	list, err := v.scope.tenancy.stores.list(ctx, v.ask, time.Time{})
	if err != nil {
		return false, err
	}
	if lvs != "" && v.ownerIn(list, lvs) == v.scope {
		return true, nil
	}
	var params map[string]any
	if v.asked++; v.asked <= asksBeforeListing {
		params = map[string]any{"name": name}
	}
	answer, err := v.ask(ctx, "bdev_get_bdevs", params)
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		v.note(name, false)
		_, err := v.storeOwner(ctx, "") // as somebody else's would
		return false, err
	}
	if err != nil {
		return false, before(err)
	}
	if err := v.learn(ctx, string(answer)); err != nil {
		return false, err
	}
	v.listed = v.listed || params == nil
	return v.bdevs[name], nil
}

// asksBeforeListing bounds how many bdevs are asked for one by one: a reactor
// answers to nothing else while it lists them all.
const asksBeforeListing = 4

// resolve asks for all bdevs that a result names and that are not known, at once.
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
			defer func() { panics[i] = recover() }() // in a goroutine it would end the process
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
		case errs[i] != nil:
			return before(errs[i])
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

// list asks for all bdevs.
func (v *ownershipCheck) list(ctx context.Context) (answer string, err error) {
	text, err := v.ask(ctx, "bdev_get_bdevs", nil)
	if err != nil {
		return "", before(err)
	}
	v.listed = true
	return string(text), v.learn(ctx, string(text))
}

// note notes whose a UUID is: theirs only if nothing else says otherwise.
func (v *ownershipCheck) note(name string, own bool) {
	if v.bdevs == nil {
		v.bdevs = map[string]bool{}
	}
	before, known := v.bdevs[name]
	v.bdevs[name] = own && (before || !known)
}

// learn notes whose the bdevs of a list are, as far as they are named by UUIDs:
// on other names their spelling decides.
func (v *ownershipCheck) learn(ctx context.Context, answer string) error {
	var lie [][2]string
	defer func() { v.scope.tenancy.volumes.learn(lie) }()
	return eachBdev(answer, func(b *bdev) error {
		own, err := v.ownsBdev(ctx, b)
		if err != nil {
			return err
		}
		if b.lvol && !b.odd && looksLikeUUID(b.name) && b.store != "" {
			lie = append(lie, [2]string{b.name, b.store})
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
	if looksLikeUUID(name) {
		v.note(name, own)
	}
}

// learnVolumes notes whose the volumes of a list are, also those that have no
// bdev at present.
func (v *ownershipCheck) learnVolumes(ctx context.Context, answer string) error {
	var lie [][2]string
	defer func() { v.scope.tenancy.volumes.learn(lie) }()
	return eachVolume(answer, func(volume, lvs string) error {
		if looksLikeUUID(volume) && lvs != "" {
			lie = append(lie, [2]string{volume, lvs})
		}
		owner, err := v.storeOwner(ctx, lvs)
		v.note(volume, owner == v.scope)
		return err
	})
}

// ownsBdev decides by the lvstore of a volume, and else by a bdev's name.
func (v *ownershipCheck) ownsBdev(ctx context.Context, b *bdev) (bool, error) {
	switch {
	case b.odd:
		return false, nil
	case b.lvol:
		owner, err := v.storeOwner(ctx, b.store)
		return owner == v.scope, err
	}
	return matchesAny(v.scope.Bdevs, b.name), nil
}

// storeOwner is the tenant that an lvstore belongs to, nil for none. Before the
// call, what was learnt earlier counts only where it says that it is theirs; in a
// result it counts for whatever lvstore was there.
func (v *ownershipCheck) storeOwner(ctx context.Context, id string) (*Scope, error) {
	list, err := v.scope.tenancy.stores.list(ctx, v.ask, time.Time{})
	if err != nil {
		return nil, err
	}
	owner := v.ownerIn(list, id)
	if _, known := list[canonical(id)]; owner == v.scope || known && v.filtering {
		return owner, nil
	}
	if list, err = v.scope.tenancy.stores.list(ctx, v.ask, v.began); err != nil {
		return nil, err
	}
	return v.ownerIn(list, id), nil
}

func (v *ownershipCheck) ownerIn(list map[string]store, id string) *Scope {
	return v.scope.tenancy.byLVStore[list[canonical(id)].Name]
}

// looksLikeUUID says whether a name may be a UUID, however it is spelt.
func looksLikeUUID(name string) bool {
	if len(name) < 32 || len(name) > 45 {
		return false
	}
	_, err := uuid.Parse(name)
	return err == nil
}

// canonical is the one spelling of a UUID, "" for what is none.
func canonical(id string) string {
	if isCanonical(id) {
		return id
	}
	if len(id) != 36 && len(id) != 32 || strings.ContainsAny(id, "{}") {
		return ""
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	return parsed.String()
}

// isCanonical says whether a UUID is spelt as SPDK spells it.
func isCanonical(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// before makes the failure of a question that comes before the call one of a
// call that was not made.
func before(err error) error {
	if errors.Is(err, spdkrpc.OutcomeUnknown) {
		return &spdkrpc.Error{Method: "bdev_get_bdevs", Kind: spdkrpc.Unreachable, Message: "the target did not say in time whose it is"}
	}
	return err
}
