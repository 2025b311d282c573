package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	countKeep = 10 * time.Second // how long a count holds; what the tenant itself adds is added to it
	lostKeep  = 10 * time.Minute // how long a call without an answer counts as if it might still be executed
	turnWait  = 30 * time.Second // how long a call waits for those before it
)

// An amount is what a tenant takes up, or a call would take up.
type amount struct{ bytes, volumes, subsystems uint64 }

func (a amount) plus(b amount) amount {
	bytes, over := bits.Add64(a.bytes, b.bytes, 0)
	if over > 0 {
		bytes = ^uint64(0)
	}
	return amount{bytes, a.volumes + b.volumes, a.subsystems + b.subsystems}
}

// An account is what one tenant takes up. Calls that add to it go one by one.
type account struct {
	turn chan struct{} // holds one value, which is whose turn it is

	mu      sync.Mutex // guards what follows
	counted amount
	at      time.Time
	lost    []lost
}

// A lost call had no answer: it may have been executed, or still be.
type lost struct {
	amount
	until time.Time
}

func newAccount() *account {
	a := &account{turn: make(chan struct{}, 1)}
	a.turn <- struct{}{}
	return a
}

// A claim is the turn of one call, and what it takes.
type claim struct {
	account *account
	asked   amount
	settled bool
}

// settle notes how the call went.
func (c *claim) settle(err error) {
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.settled = true
	switch {
	case err == nil:
		c.account.counted = c.account.counted.plus(c.asked)
	case errors.Is(err, spdkrpc.OutcomeUnknown):
		c.account.lost = append(c.account.lost, lost{c.asked, now().Add(lostKeep)})
	}
}

func (c *claim) release() { c.account.turn <- struct{}{} }

// sizedBy says where a method that makes or grows a volume gets its size from:
// a parameter, or a bdev that it names. The schema does not tell.
var sizedBy = map[string]struct{ source, volume string }{
	"bdev_lvol_create":     {},
	"bdev_lvol_resize":     {volume: "name"},
	"bdev_lvol_snapshot":   {source: "lvol_name"},
	"bdev_lvol_clone":      {source: "snapshot_name"},
	"bdev_lvol_clone_bdev": {source: "bdev"},
}

// reserve waits for the call's turn and holds what it takes against the quota.
func (g *Grant) reserve(ctx context.Context, ask Ask) error {
	q := g.scope.Quota
	_, sized := sizedBy[g.method.Name]
	subsystem := g.plan.subsystem
	bounded := q.Bytes > 0 || q.Volumes > 0
	switch {
	case bounded && g.plan.creates, bounded && g.plan.volume && !sized:
		return g.scope.refuse("%s: what it takes up cannot be counted against this tenant's quota", g.method.Name)
	case bounded && sized, q.Subsystems > 0 && subsystem:
	default:
		return nil
	}
	a := g.scope.account
	timer := time.NewTimer(turnWait)
	defer timer.Stop()
	select {
	case <-a.turn:
	case <-timer.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
	g.claim = &claim{account: a}
	if subsystem {
		g.claim.asked.subsystems = 1
	}
	if sized && bounded {
		taken, err := g.measure(ctx, ask)
		if err != nil {
			return err
		}
		g.claim.asked = g.claim.asked.plus(taken)
	}
	return g.within(ctx, ask)
}

// within holds what the call takes against the quota: against the last count
// if that will do, or else against a new one.
func (g *Grant) within(ctx context.Context, ask Ask) error {
	a, q := g.scope.account, g.scope.Quota
	a.mu.Lock()
	counted, fresh := a.counted, now().Before(a.at.Add(countKeep))
	kept := a.lost[:0]
	var pending amount
	for _, l := range a.lost {
		if now().Before(l.until) {
			kept, pending = append(kept, l), pending.plus(l.amount)
		}
	}
	a.lost = kept
	a.mu.Unlock()
	if fresh && q.allows(g.scope.Name, counted.plus(pending), g.claim.asked) == nil {
		return nil
	}
	started := now()
	counted, err := g.count(ctx, ask)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.counted, a.at = counted, started
	a.mu.Unlock()
	return q.allows(g.scope.Name, counted.plus(pending), g.claim.asked)
}

// allows holds an amount against the bounds. What takes none passes, even where
// more is taken already.
func (q Quota) allows(tenant string, used, asked amount) error {
	for _, b := range []struct {
		what              string
		used, asked, most uint64
	}{
		{"bytes", used.bytes, asked.bytes, q.Bytes},
		{"volumes", used.volumes, asked.volumes, uint64(q.Volumes)},
		{"subsystems", used.subsystems, asked.subsystems, uint64(q.Subsystems)},
	} {
		total, over := bits.Add64(b.used, b.asked, 0)
		if b.most > 0 && b.asked > 0 && (over > 0 || total > b.most) {
			return &QuotaError{Tenant: tenant, What: b.what, Used: b.used, Asked: b.asked, Most: b.most}
		}
	}
	return nil
}

// measure works out what the call takes. Bdevs that it is measured by are then
// named by UUID, so that the call means them and no other.
func (g *Grant) measure(ctx context.Context, ask Ask) (amount, error) {
	by := sizedBy[g.method.Name]
	if by.source != "" {
		b, err := g.pin(ctx, ask, by.source)
		if err != nil || b == nil {
			return amount{}, err
		}
		return amount{bytes: b.size(), volumes: 1}, nil
	}
	size, err := g.requested()
	if err != nil {
		return amount{}, err
	}
	if by.volume != "" {
		b, err := g.pin(ctx, ask, by.volume)
		if err != nil || b == nil {
			return amount{}, err
		}
		if !b.lvol {
			return amount{}, nil // SPDK will say that it is no volume
		}
		size, err = g.rounded(ctx, ask, size, func(s store) bool { return canonical(s.UUID) == canonical(b.store) })
		return amount{bytes: max(size, b.size()) - b.size()}, err
	}
	lvs, _ := g.Params["lvs_name"].(string)
	id, _ := g.Params["uuid"].(string)
	size, err = g.rounded(ctx, ask, size, func(s store) bool {
		return lvs != "" && s.Name == lvs || id != "" && canonical(s.UUID) == canonical(id)
	})
	return amount{bytes: size, volumes: 1}, err
}

// pin finds the bdev that a parameter names, and names it by UUID. One that
// does not exist is named as nothing is: should it come to exist meanwhile, it
// was not measured.
func (g *Grant) pin(ctx context.Context, ask Ask, param string) (*bdev, error) {
	name, _ := g.Params[param].(string)
	if _, nothing := g.hidden[name]; nothing {
		return nil, nil
	}
	answer, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		g.Params[param] = g.hide("bdev", name)
		return nil, nil
	}
	if err != nil {
		return nil, before(err)
	}
	var found []bdev
	if err := eachBdev(string(answer), func(b *bdev) error { found = append(found, *b); return nil }); err != nil {
		return nil, err
	}
	if len(found) != 1 || found[0].odd {
		return nil, &unreadableError{"bdev_get_bdevs", errors.New("not one bdev")}
	}
	g.Params[param] = found[0].name
	return &found[0], nil
}

// requested is the size that the call asks for, in bytes.
func (g *Grant) requested() (uint64, error) {
	for name, factor := range map[string]uint64{"size_in_mib": 1 << 20, "size": 1} {
		number, ok := g.Params[name].(json.Number)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number.String(), 10, 64)
		if err != nil {
			return 0, g.scope.refuse("%s: write %s in plain digits, or it cannot be counted against the quota", g.method.Name, name)
		}
		if over, bytes := bits.Mul64(n, factor); over == 0 {
			return bytes, nil
		}
		return ^uint64(0), nil
	}
	return 0, g.scope.refuse("%s: without a size it cannot be counted against the quota", g.method.Name)
}

// rounded rounds a size up to the clusters of its lvstore, as SPDK does.
func (g *Grant) rounded(ctx context.Context, ask Ask, size uint64, is func(store) bool) (uint64, error) {
	list, err := g.scope.tenancy.stores.list(ctx, ask, time.Time{})
	if err != nil {
		return 0, err
	}
	cluster := uint64(1)
	for _, s := range list {
		if is(s) && s.ClusterSize > 0 {
			cluster = s.ClusterSize
		}
	}
	if rest := size % cluster; rest > 0 && size <= ^uint64(0)-cluster {
		size += cluster - rest
	}
	return size, nil
}

// count asks the target what the tenant takes up.
func (g *Grant) count(ctx context.Context, ask Ask) (sum amount, err error) {
	q := g.scope.Quota
	if q.Bytes > 0 || q.Volumes > 0 {
		answer, err := ask(ctx, "bdev_get_bdevs", nil)
		if err != nil {
			return amount{}, before(err)
		}
		err = eachBdev(string(answer), func(b *bdev) error {
			switch {
			case b.odd:
				return &unreadableError{"bdev_get_bdevs", errNoJSON}
			case !b.lvol:
				return nil
			}
			own, err := g.sight.ownsBdev(ctx, b)
			if own {
				sum = sum.plus(amount{bytes: b.size(), volumes: 1})
			}
			return err
		})
		if err != nil {
			return amount{}, err
		}
	}
	if q.Subsystems == 0 {
		return sum, nil
	}
	var subsystems []struct {
		NQN string `json:"nqn"`
	}
	if err := answered(ctx, ask, "nvmf_get_subsystems", &subsystems); err != nil {
		return amount{}, err
	}
	for _, s := range subsystems {
		own, err := g.sight.owns(ctx, "nqn", s.NQN)
		if err != nil {
			return amount{}, err
		}
		if own {
			sum.subsystems++
		}
	}
	if len(g.scope.IQNPrefixes) == 0 {
		return sum, nil
	}
	var nodes []struct {
		Name string `json:"name"`
	}
	if err := answered(ctx, ask, "iscsi_get_target_nodes", &nodes); err != nil {
		return amount{}, err
	}
	for _, n := range nodes {
		if g.scope.ownsNamed("iqn", n.Name) {
			sum.subsystems++
		}
	}
	return sum, nil
}

func answered(ctx context.Context, ask Ask, method string, into any) error {
	answer, err := ask(ctx, method, nil)
	if err != nil {
		return before(err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return &unreadableError{method, err}
	}
	return nil
}
