package tenancy

import (
	"context"
	"math/bits"
	"slices"
	"time"
)

const (
	countKeep    = 10 * time.Second // how long a count holds; what the tenant itself adds is added to it
	recountAfter = time.Second      // until when what is too much is not counted again, unless something of theirs has gone: counting keeps the target busy
	lostKeep     = 10 * time.Minute // how long a call without an answer counts as if it might still be executed
	turnWait     = 30 * time.Second // how long a call waits for those before it
)

// reserve holds what the call takes against the quota, and keeps it reserved.
func (g *Grant) reserve(ctx context.Context, ask Ask) error {
	q := g.scope.Quota
	by, sized := sizedBy[g.method.Name]
	bounded := q.Bytes > 0 || q.Volumes > 0
	switch {
	case bounded && g.plan.creates, bounded && g.plan.volume && !sized, q.Bytes > 0 && slices.Contains(resizing, g.method.Name):
		return g.scope.refuse("%s: what it takes up cannot be counted against this tenant's quota", g.method.Name)
	case bounded && sized, q.Subsystems > 0 && g.plan.subsystem:
	default:
		return nil
	}
	timer := time.NewTimer(turnWait)
	defer timer.Stop()
	c := &claim{account: g.scope.account}
	if err := c.enter(ctx, timer.C); err != nil {
		return err
	}
	g.claim = c
	alone := by != sizing{}
	if alone {
		if err := c.drain(ctx, timer.C); err != nil {
			return err
		}
	}
	if g.plan.subsystem {
		c.asked.subsystems = 1
		c.makes, _ = g.Params["nqn"].(string)
	}
	if sized && bounded {
		taken, err := g.measure(ctx, ask)
		if err != nil {
			return err
		}
		c.asked = c.asked.plus(taken)
	}
	if err := g.within(ctx, ask, timer.C); err != nil {
		return err
	}
	c.account.hold(c)
	if !alone {
		c.leave()
	}
	return nil
}

// within holds what the call takes against the quota: against the last count if
// that will do, or else against a new one, or else against one that is made while
// nothing is under way.
func (g *Grant) within(ctx context.Context, ask Ask, bound <-chan time.Time) error {
	a, c := g.scope.account, g.claim
	fits := func() (fresh, surely bool, err error) {
		used, fresh, surely := a.taken(c)
		return fresh, surely, g.scope.Quota.allows(g.scope.Name, used, c.asked)
	}
	count := func() (amount, error) { return g.count(ctx, ask) }
	if fresh, surely, err := fits(); fresh && err == nil || surely {
		return err
	}
	exact, err := a.recount(count)
	if err != nil {
		return err
	}
	if _, _, err = fits(); err == nil || exact {
		return err
	}
	if err := c.drain(ctx, bound); err != nil {
		return err
	}
	if _, err := a.recount(count); err != nil {
		return err
	}
	_, _, err = fits()
	return err
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
