package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A sight is what one call learns of whose the objects of the target are.
type sight struct {
	scope  *Scope
	ask    Ask
	bdevs  map[string]bool // by every name: theirs?
	listed bool            // bdevs has all that there are
	asked  int
	fresh  time.Time // lvstores that were learnt before don't count; zero: they do
}

// A bdev is what bdev_get_bdevs tells, as far as it matters here.
type bdev struct {
	Name      string   `json:"name"`
	Aliases   []string `json:"aliases"`
	UUID      string   `json:"uuid"`
	BlockSize uint64   `json:"block_size"`
	NumBlocks uint64   `json:"num_blocks"`
	Driver    struct {
		Lvol *struct {
			Store string `json:"lvol_store_uuid"`
		} `json:"lvol"`
	} `json:"driver_specific"`
}

func (b bdev) size() uint64 { return b.BlockSize * b.NumBlocks }

// owns decides whether an object that the client, or SPDK, names is theirs.
// Only names that are UUIDs, or hold one, take a question to the target; all others are
// decided by their spelling, and so alike whether or not they exist.
func (v *sight) owns(ctx context.Context, kind, name string) (bool, error) {
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

// asksBeforeListing bounds how many bdevs are asked for one by one: a reactor
// answers to nothing else while it lists them all.
const asksBeforeListing = 4

// ownsUUID decides on a bdev named by UUID: it is its lvstore's, or else the
// name's that it has besides.
func (v *sight) ownsUUID(ctx context.Context, name string) (bool, error) {
	if own, known := v.bdevs[name]; known || v.listed {
		return own, nil
	}
	var params map[string]any
	if v.asked++; v.asked <= asksBeforeListing {
		params = map[string]any{"name": name}
	}
	answer, err := v.ask(ctx, "bdev_get_bdevs", params)
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		v.note(name, false)
		_, err := v.storeOwner(ctx, "") // takes the time that somebody else's volume would
		return false, err
	}
	if err != nil {
		return false, before(err)
	}
	if err := v.learn(ctx, answer); err != nil {
		return false, err
	}
	v.listed = v.listed || params == nil
	return v.bdevs[name], nil
}

// note notes whose a name is: theirs only if nothing else says otherwise.
func (v *sight) note(name string, own bool) {
	if v.bdevs == nil {
		v.bdevs = map[string]bool{}
	}
	before, known := v.bdevs[name]
	v.bdevs[name] = own && (before || !known)
}

// learn notes whose the bdevs of a list are.
func (v *sight) learn(ctx context.Context, answer json.RawMessage) error {
	var list []bdev
	if err := json.Unmarshal(answer, &list); err != nil {
		return &unreadableError{"bdev_get_bdevs", err}
	}
	for _, b := range list {
		own, err := v.ownsBdev(ctx, b)
		if err != nil {
			return err
		}
		v.note(b.Name, own)
		for _, alias := range b.Aliases {
			v.note(alias, own)
		}
		if b.UUID != "" {
			v.note(b.UUID, own)
		}
	}
	return nil
}

// learnVolumes notes whose the volumes of a list are, also those that have no
// bdev at present.
func (v *sight) learnVolumes(ctx context.Context, answer json.RawMessage) error {
	var list []struct {
		UUID  string `json:"uuid"`
		Store struct {
			UUID string `json:"uuid"`
		} `json:"lvs"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return &unreadableError{"bdev_lvol_get_lvols", err}
	}
	for _, lvol := range list {
		owner, err := v.storeOwner(ctx, lvol.Store.UUID)
		if err != nil {
			return err
		}
		v.note(lvol.UUID, owner == v.scope)
	}
	return nil
}

// ownsBdev decides by a bdev's lvstore, and where that is no tenant's by name.
func (v *sight) ownsBdev(ctx context.Context, b bdev) (bool, error) {
	if b.Driver.Lvol != nil {
		owner, err := v.storeOwner(ctx, b.Driver.Lvol.Store)
		if owner != nil || err != nil {
			return owner == v.scope, err
		}
	}
	return matchesAny(v.scope.Bdevs, b.Name), nil
}

// storeOwner is the tenant that an lvstore belongs to, nil for none. What was
// learnt before this call counts only where it says that it is theirs.
func (v *sight) storeOwner(ctx context.Context, id string) (*Scope, error) {
	list, err := v.scope.tenancy.stores.list(ctx, v.ask, v.fresh)
	if err != nil {
		return nil, err
	}
	owner := v.scope.tenancy.byLVStore[list[canonical(id)].Name]
	if owner == v.scope || !v.fresh.IsZero() {
		return owner, nil
	}
	v.fresh = now()
	return v.storeOwner(ctx, id)
}

// stores knows the lvstores of the target by UUID. A name may pass to another
// lvstore, so what was learnt counts only for a moment.
type stores struct {
	mu     sync.Mutex
	known  map[string]store
	learnt time.Time
}

type store struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	ClusterSize uint64 `json:"cluster_size"`
}

// storesKeep is how long the names of lvstores are taken to hold.
const storesKeep = 2 * time.Second

// list asks for the lvstores, unless it has just done so, and since fresh.
func (s *stores) list(ctx context.Context, ask Ask, fresh time.Time) (map[string]store, error) {
	s.mu.Lock()
	known, learnt := s.known, s.learnt
	s.mu.Unlock()
	if now().Before(learnt.Add(storesKeep)) && !learnt.Before(fresh) {
		return known, nil
	}
	asked := now()
	answer, err := ask(ctx, "bdev_lvol_get_lvstores", nil)
	if err != nil {
		return nil, before(err)
	}
	var list []store
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, &unreadableError{"bdev_lvol_get_lvstores", err}
	}
	known = make(map[string]store, len(list))
	for _, lvs := range list {
		known[canonical(lvs.UUID)] = lvs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.learnt = known, asked
	return known, nil
}

// looksLikeUUID says whether a name may be a UUID, however it is spelt.
func looksLikeUUID(name string) bool {
	_, err := uuid.Parse(name)
	return err == nil
}

// canonical is the one spelling of a UUID, "" for what is none.
func canonical(id string) string {
	if len(id) != 36 && len(id) != 32 || strings.ContainsAny(id, "{}") {
		return ""
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	return parsed.String()
}

// before makes the failure of a question that comes before the call one of a
// call that was not made.
func before(err error) error {
	if errors.Is(err, spdkrpc.OutcomeUnknown) {
		return &spdkrpc.Error{Method: "bdev_get_bdevs", Kind: spdkrpc.Unreachable, Message: "the target did not say in time whose it is"}
	}
	return err
}
