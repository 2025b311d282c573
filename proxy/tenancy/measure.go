package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A sizing names the parameters from which a volume's size results.
type sizing struct {
	source string // names the bdev from which the size is inherited
	volume string // names the volume whose size is set
	list   string // list whose items have the member source
}

// sizedBy describes, for each method that creates or grows a volume, whether the volume's size
// comes from a parameter or from a bdev that a parameter names. The schema cannot express this.
var sizedBy = map[string]sizing{
	"bdev_lvol_create":     {},
	"bdev_lvol_resize":     {volume: "name"},
	"bdev_lvol_snapshot":   {source: "lvol_name"},
	"bdev_lvol_clone":      {source: "snapshot_name"},
	"bdev_lvol_clone_bdev": {source: "bdev"},

	"spdkgate_lvol_snapshot": {source: "lvol_name", list: "snapshots"},
}

// measure returns the amount that the call will use. If there is a quota for bytes, measure also
// makes the call refer by UUID to the bdevs whose sizes count, and to the lvstore whose cluster
// size applies. Otherwise, another object could take over a name before SPDK executes the call.
func (g *Grant) measure(ctx context.Context, ask Ask) (amount, error) {
	by := sizedBy[g.method.Name]
	if g.scope.Quota.Bytes == 0 {
		return amount{volumes: g.createdVolumes(by)}, nil
	}
	if by.list != "" {
		return g.measureEach(ctx, ask, by)
	}
	if by.source != "" {
		b, err := g.pin(ctx, ask, g.Params, by.source)
		if err != nil || b == nil {
			return amount{}, err
		}
		size := g.claim.inherit(b)
		return amount{bytes: size, volumes: 1}, nil
	}
	size, err := g.requested()
	if err != nil {
		return amount{}, err
	}
	if by.volume == "" {
		lvs, err := g.pinStore(ctx, ask)
		return amount{bytes: lvs.round(size), volumes: 1}, err
	}
	b, err := g.pin(ctx, ask, g.Params, by.volume)
	if err != nil || b == nil {
		return amount{}, err
	}
	if !b.lvol {
		return amount{}, nil // not a volume, so SPDK refuses the call
	}
	list, err := g.scope.tenancy.stores.list(ctx, ask, time.Time{})
	if err != nil {
		return amount{}, err
	}
	size = list[rpcschema.CanonicalUUID(b.store)].round(size)
	g.claim.sizes = []bdevSize{{b.name, size, amount{bytes: max(size, b.size()) - b.size()}}}
	return amount{bytes: max(size, b.size()) - b.size()}, nil
}

// createdVolumes returns how many volumes the call creates.
func (g *Grant) createdVolumes(by sizing) uint64 {
	items, _ := g.Params[by.list].([]any)
	switch {
	case by.list != "":
		return uint64(len(items))
	case by.volume != "":
		return 0 // the call resizes a volume
	}
	return 1
}

// measureEach returns the sum of the amounts that the items of a list will use.
func (g *Grant) measureEach(ctx context.Context, ask Ask, by sizing) (sum amount, err error) {
	items, _ := g.Params[by.list].([]any)
	for _, item := range items {
		params, ok := item.(map[string]any)
		if !ok {
			return amount{}, g.scope.refuse("%s: %s cannot be counted against this tenant's quota", g.method.Name, by.list)
		}
		b, err := g.pin(ctx, ask, params, by.source)
		if err != nil {
			return amount{}, err
		}
		if b != nil {
			sum = sum.plus(amount{bytes: g.claim.inherit(b), volumes: 1})
		}
	}
	return sum, nil
}

// inherit records that the call creates a volume with the size of bdev b, and returns that size. An
// unanswered call may have changed the size, so the result can exceed the current size of b.
func (c *claim) inherit(b *bdev) uint64 {
	size := c.account.largest(b.name, b.size())
	c.sizes = append(c.sizes, bdevSize{b.name, size, amount{bytes: size, volumes: 1}})
	return size
}

// pinStore finds the lvstore in which the call creates a volume, and makes the call refer to it by
// UUID. It replaces the name of a missing lvstore with an unused name.
func (g *Grant) pinStore(ctx context.Context, ask Ask) (store, error) {
	lvs, byName := g.Params["lvs_name"].(string)
	id, _ := g.Params["uuid"].(string)
	if g.hidden[lvs] != "" || g.hidden[id] != "" {
		return store{}, nil
	}
	for _, fresh := range []time.Time{{}, g.ownership.began} {
		list, err := g.scope.tenancy.stores.list(ctx, ask, fresh)
		if err != nil {
			return store{}, err
		}
		for known, s := range list {
			if byName && s.Name == lvs || !byName && known == rpcschema.CanonicalUUID(id) {
				delete(g.Params, "lvs_name")
				g.Params["uuid"] = s.UUID
				return s, nil
			}
		}
	}
	if byName {
		g.Params["lvs_name"] = g.hide("lvstore", lvs)
	} else {
		g.Params["uuid"] = g.hide("lvstore-uuid", id)
	}
	return store{}, nil
}

// round rounds a size up to whole clusters of the lvstore, as SPDK does.
func (s store) round(size uint64) uint64 {
	if s.ClusterSize == 0 {
		return size
	}
	if rest := size % s.ClusterSize; rest > 0 {
		if size > math.MaxUint64-s.ClusterSize {
			return math.MaxUint64
		}
		size += s.ClusterSize - rest
	}
	return size
}

// pin finds the bdev named by a parameter, and makes the call refer to it by UUID. It replaces the
// name of a missing bdev with an unused name, because a bdev that appears in the meantime would
// have an unknown size.
func (g *Grant) pin(ctx context.Context, ask Ask, params map[string]any, param string) (*bdev, error) {
	name, _ := params[param].(string)
	if _, hidden := g.hidden[name]; hidden {
		return nil, nil
	}
	answer, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		params[param] = g.hide("bdev", name)
		return nil, nil
	}
	if err != nil {
		return nil, notExecuted(err)
	}
	var found []bdev
	if err := eachBdev(string(answer), func(b *bdev) error { found = append(found, *b); return nil }); err != nil {
		return nil, err
	}
	if len(found) != 1 || found[0].ambiguous {
		return nil, &unreadableError{"bdev_get_bdevs", errors.New("the response does not describe exactly one bdev")}
	}
	params[param] = found[0].name
	return &found[0], nil
}

// requested returns the size that the call requests, in bytes.
func (g *Grant) requested() (size uint64, err error) {
	given := false
	for name, factor := range map[string]uint64{"size_in_mib": 1 << 20, "size": 1} {
		number, ok := g.Params[name].(json.Number)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number.String(), 10, 64)
		if err != nil {
			return 0, g.scope.refuse("%s: write %s in plain digits, because it counts against the quota", g.method.Name, name)
		}
		over, bytes := bits.Mul64(n, factor)
		if over > 0 {
			bytes = math.MaxUint64
		}
		size, given = max(size, bytes), true
	}
	if !given {
		return 0, g.scope.refuse("%s: give a size, so that it can be counted against the quota", g.method.Name)
	}
	return size, nil
}
