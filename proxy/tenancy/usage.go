package tenancy

import "context"

// A Usage records how much of its quota a tenant uses. It is computed by the same functions that
// check calls against the quota (count.go), so calls without a response count in the same way.
type Usage struct{ Bytes, Volumes, Subsystems, Hosts, Listeners uint64 }

// Usage returns the usage of each tenant, in the order of the scopes. It reads the target's lists
// once for all tenants, and does not change any state on which decisions depend. A call that ends
// in the meantime may be counted twice.
func (t *Tenancy) Usage(ctx context.Context, ask Ask, scopes ...*Scope) ([]Usage, error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	select {
	// only one call of Usage at a time, because each keeps the target's lists in memory
	case scopes[0].counting <- struct{}{}:
		defer func() { <-scopes[0].counting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	checks, sums := make([]*ownershipCheck, len(scopes)), make([]amount, len(scopes))
	iscsi, began := false, now()
	for i, s := range scopes {
		checks[i], sums[i] = &ownershipCheck{scope: s, ask: ask, began: began}, s.volumes.pending().plus(s.exports.pending())
		iscsi = iscsi || len(s.IQNPrefixes) > 0
	}
	exports, err := readExports(ctx, ask, iscsi)
	if err != nil {
		return nil, err
	}
	list, err := checks[0].list(ctx)
	if err != nil {
		return nil, err
	}
	used := make([]Usage, len(scopes))
	for i, check := range checks {
		if !check.listed {
			check.listed = true
			if err := check.learn(ctx, list); err != nil {
				return nil, err
			}
		}
		volumes, err := check.countVolumes(ctx, list)
		if err != nil {
			return nil, err
		}
		exported, err := check.countExports(ctx, exports)
		if err != nil {
			return nil, err
		}
		sum := sums[i].plus(volumes).plus(exported)
		used[i] = Usage{sum.bytes, sum.volumes, sum.subsystems, sum.hosts, sum.listeners}
	}
	return used, nil
}
