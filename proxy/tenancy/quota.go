package tenancy

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
)

const (
	// how long a count of a tenant's objects is used; the amounts of later calls are added to it
	countKeep = 10 * time.Second
	// minimum time between counts caused by calls over the quota, unless objects of the tenant were
	// deleted; counting keeps the target busy
	recountAfter = time.Second
	// how long a call without a response counts as if it could still be executed
	unansweredKeep = 10 * time.Minute
	turnWait       = 30 * time.Second // how long a call waits for earlier calls
)

// reserve checks the call's amount against the quota, and reserves it.
func (g *Grant) reserve(ctx context.Context, ask Ask) error {
	q := g.scope.Quota
	by, sized := sizedBy[g.method.Name]
	bounded := q.Bytes > 0 || q.Volumes > 0
	c := &claim{account: g.scope.volumes}
	switch {
	case bounded && g.plan.Creates, bounded && g.plan.Volume && !sized, q.Bytes > 0 && plan.Resizes(g.method.Name):
		return g.scope.refuse("%s cannot be counted against this tenant's quota", g.method.Name)
	case bounded && sized && (q.Bytes > 0 || by.volume == ""):
	case q.bounds(g.exported()):
		c.account, c.asked = g.scope.exports, g.exported()
		c.subsystem, _ = g.Params["nqn"].(string)
	default:
		return nil
	}
	timer := time.NewTimer(turnWait)
	defer timer.Stop()
	if err := c.enter(ctx, timer.C); err != nil {
		return err
	}
	g.claim = c
	alone := q.Bytes > 0 && by != sizing{}
	if alone {
		if err := c.drain(ctx, timer.C); err != nil {
			return err
		}
	}
	if c.account == g.scope.volumes {
		needed, err := g.measure(ctx, ask)
		if err != nil {
			return err
		}
		c.asked = needed
	}
	if err := g.checkQuota(ctx, ask, timer.C); err != nil {
		return err
	}
	c.account.add(c)
	if !alone {
		c.leave()
	}
	if c.subsystem != "" && !g.scope.ownsNamed("nqn", c.subsystem) {
		g.scope.tenancy.owners.Add(g.scope.Name, c.subsystem)
	}
	return nil
}

// checkQuota checks the call's amount against the quota. It uses the last count if this suffices;
// otherwise, it counts again. If the amount still exceeds the quota, it counts once more while no
// call is running.
func (g *Grant) checkQuota(ctx context.Context, ask Ask, timeout <-chan time.Time) error {
	a, c := g.claim.account, g.claim
	fits := func() (fresh, certain bool, err error) {
		used, fresh, certain := a.used(c)
		return fresh, certain, g.scope.Quota.allows(g.scope.Name, used, c.asked)
	}
	count := func() (amount, error) {
		if a == g.scope.exports {
			return g.scope.countExports(ctx, ask)
		}
		return g.scope.countVolumes(ctx, ask)
	}
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

// exported returns the amount that the call adds to the tenant's exports.
func (g *Grant) exported() amount {
	switch {
	case g.plan.Subsystem:
		return amount{subsystems: 1}
	case g.method.Name == "nvmf_subsystem_add_host":
		return amount{hosts: 1}
	case g.method.Name == "nvmf_subsystem_add_listener":
		return amount{listeners: 1}
	}
	return amount{}
}

// A bound is a limit in a quota, with the amounts used and requested.
type bound struct {
	name              string
	used, asked, most uint64
}

func (q Quota) with(used, asked amount) []bound {
	return []bound{
		{"bytes", used.bytes, asked.bytes, q.Bytes},
		{"volumes", used.volumes, asked.volumes, uint64(q.Volumes)},
		{"subsystems", used.subsystems, asked.subsystems, uint64(q.Subsystems)},
		{"hosts", used.hosts, asked.hosts, uint64(q.Hosts)},
		{"listeners", used.listeners, asked.listeners, uint64(q.Listeners)},
	}
}

// bounds reports whether the quota limits any of the requested amounts.
func (q Quota) bounds(asked amount) bool {
	return slices.ContainsFunc(q.with(amount{}, asked), func(b bound) bool { return b.most > 0 && b.asked > 0 })
}

// allows returns a *QuotaError if the amounts used and asked together exceed the quota. A call that
// requests nothing is allowed even if the quota has already been exceeded.
func (q Quota) allows(tenant string, used, asked amount) error {
	for _, b := range q.with(used, asked) {
		total, over := bits.Add64(b.used, b.asked, 0)
		if b.most > 0 && b.asked > 0 && (over > 0 || total > b.most) {
			return &QuotaError{Tenant: tenant, What: b.name, Used: b.used, Asked: b.asked, Most: b.most}
		}
	}
	return nil
}

// CheckQuota returns the *QuotaError with which Admit would refuse one of the calls if all of these
// methods were called while the tenant uses the given amounts. It takes into account the
// subsystems, hosts and listeners that the calls would add.
func (s *Scope) CheckQuota(methods []*rpcschema.Method, used Usage) error {
	var asked amount
	for _, m := range methods {
		g := Grant{method: m, plan: s.tenancy.plans.Of(m.Name)}
		asked = asked.plus(g.exported())
	}
	return s.Quota.allows(s.Name, amount{used.Bytes, used.Volumes, used.Subsystems, used.Hosts, used.Listeners}, asked)
}
