package tenancy

import (
	"context"
	"errors"
	"math/bits"
	"slices"
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

	mu         sync.Mutex // guards what follows
	counted    amount
	at         time.Time
	lost       []lost
	subsystems map[string]bool // that it has made: one that is named by a volume outlives it
}

// A lost call had no answer: it may have been executed, or still be, at any
// time until it is forgotten.
type lost struct {
	amount
	bdev  string // whose size it sets, or takes over
	until time.Time
}

func newAccount() *account {
	a := &account{turn: make(chan struct{}, 1), subsystems: map[string]bool{}}
	a.turn <- struct{}{}
	return a
}

// doubt lets nothing hold that was counted.
func (a *account) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
}

// A claim is the turn of one call, and what it takes.
type claim struct {
	account *account
	asked   amount
	makes   string // NQN of a subsystem
	bdev    string // whose size it sets, or takes over
	size    uint64 // the size that it has then, or had
	settled bool
}

// settle notes how the call went. One that is executed at some time later may
// find its volume smaller than it was, and then takes more than it asked for.
func (c *claim) settle(err error) {
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	c.settled = true
	if c.makes != "" && (err == nil || errors.Is(err, spdkrpc.OutcomeUnknown)) {
		c.account.subsystems[c.makes] = true
	}
	switch {
	case err == nil:
		c.account.counted = c.account.counted.plus(c.asked)
	case errors.Is(err, spdkrpc.OutcomeUnknown):
		l := lost{c.asked, c.bdev, now().Add(lostKeep)}
		l.bytes = max(l.bytes, c.size)
		c.account.lost = append(c.account.lost, l)
	}
}

// largest is the size that a bdev may have by calls that were lost, or size.
func (a *account) largest(bdev string, size uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lost {
		if l.bdev == bdev && now().Before(l.until) {
			size = max(size, l.bytes)
		}
	}
	return size
}

func (c *claim) release() { c.account.turn <- struct{}{} }

// reserve waits for the call's turn and holds what it takes against the quota.
func (g *Grant) reserve(ctx context.Context, ask Ask) error {
	q := g.scope.Quota
	_, sized := sizedBy[g.method.Name]
	subsystem := g.plan.subsystem
	bounded := q.Bytes > 0 || q.Volumes > 0
	switch {
	case bounded && g.plan.creates, bounded && g.plan.volume && !sized, q.Bytes > 0 && slices.Contains(resizing, g.method.Name):
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
		g.claim.makes, _ = g.Params["nqn"].(string)
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
		if !now().Before(l.until) {
			continue
		}
		if g.claim.bdev != "" && l.bdev == g.claim.bdev {
			l.bytes = max(l.bytes, g.claim.size) // if it comes after this one, it may take over this size
		}
		kept, pending = append(kept, l), pending.plus(l.amount)
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
