package tenancy

import (
	"context"
	"math/bits"
	"time"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
)

const (
	countKeep      = 10 * time.Second // how long a count is used; what the tenant's calls add is added to it
	recountAfter   = time.Second      // how long a call over the quota does not cause a new count, unless objects of the tenant were deleted: counting keeps the target busy
	unansweredKeep = 10 * time.Minute // how long a call without an answer counts as if it might still be executed
	turnWait       = 30 * time.Second // how long a call waits for earlier ones
)

// reserve checks what the call will use against the quota, and reserves it.
func (g *Grant) reserve(ctx context.Context, ask Ask) error {
	q := g.scope.Quota
	by, sized := sizedBy[g.method.Name]
	bounded := q.Bytes > 0 || q.Volumes > 0
	switch {
	case bounded && g.plan.Creates, bounded && g.plan.Volume && !sized, q.Bytes > 0 && plan.Resizes(g.method.Name):
		return g.scope.refuse("%s cannot be counted against this tenant's quota", g.method.Name)
	case bounded && sized, q.Subsystems > 0 && g.plan.Subsystem:
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
	if g.plan.Subsystem {
		c.asked.subsystems = 1
		c.creates, _ = g.Params["nqn"].(string)
	}
	if sized && bounded {
		needed, err := g.measure(ctx, ask)
		if err != nil {
			return err
		}
		c.asked = c.asked.plus(needed)
	}
	if err := g.checkQuota(ctx, ask, timer.C); err != nil {
		return err
	}
	c.account.add(c)
	if !alone {
		c.leave()
	}
	return nil
}

// checkQuota checks what the call will use against the quota: with the last count if that is
// sufficient, or else with a new one, or else with one that is made while no call is running.
func (g *Grant) checkQuota(ctx context.Context, ask Ask, timeout <-chan time.Time) error {
	a, c := g.scope.account, g.claim
	fits := func() (fresh, certain bool, err error) {
		used, fresh, certain := a.used(c)
		return fresh, certain, g.scope.Quota.allows(g.scope.Name, used, c.asked)
	}
	count := func() (amount, error) { return g.count(ctx, ask) }
	if fresh, certain, err := fits(); fresh && err == nil || certain {
		return err
	}
	exact, err := a.recount(count)
	if err != nil {
		return err
	}
	if _, _, err = fits(); err == nil || exact {
		return err
	}
	if err := c.drain(ctx, timeout); err != nil {
		return err
	}
	if _, err := a.recount(count); err != nil {
		return err
	}
	_, _, err = fits()
	return err
}

// allows returns a *QuotaError if used and asked together exceed the quota. A call that asks for
// nothing passes even if the quota is exceeded already.
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
