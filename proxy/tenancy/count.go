package tenancy

import (
	"context"
	"encoding/json"
)

// count counts at the target what the tenant uses.
func (g *Grant) count(ctx context.Context, ask Ask) (sum amount, err error) {
	q := g.scope.Quota
	check := &ownershipCheck{scope: g.scope, ask: ask, began: now()}
	if q.Bytes > 0 || q.Volumes > 0 || g.scope.VolumeNQN != "" {
		list, err := check.list(ctx)
		if err != nil {
			return amount{}, err
		}
		err = eachBdev(list, func(b *bdev) error {
			switch {
			case b.ambiguous:
				return &unreadableError{"bdev_get_bdevs", errNoJSON}
			case !b.lvol:
				return nil
			}
			own, err := check.ownsBdev(ctx, b)
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
	if err := query(ctx, ask, "nvmf_get_subsystems", &subsystems); err != nil {
		return amount{}, err
	}
	existing := make(map[string]bool, len(subsystems))
	for _, s := range subsystems {
		own, err := check.owns(ctx, "nqn", s.NQN)
		if err != nil {
			return amount{}, err
		}
		if existing[s.NQN] = true; own || g.scope.account.created(s.NQN) {
			sum.subsystems++
		}
	}
	g.scope.account.forgetSubsystems(existing)
	if len(g.scope.IQNPrefixes) == 0 {
		return sum, nil
	}
	var nodes []struct {
		Name string `json:"name"`
	}
	if err := query(ctx, ask, "iscsi_get_target_nodes", &nodes); err != nil {
		return amount{}, err
	}
	for _, n := range nodes {
		if g.scope.ownsNamed("iqn", n.Name) {
			sum.subsystems++
		}
	}
	return sum, nil
}

// query makes one of the proxy's own calls, and decodes its result.
func query(ctx context.Context, ask Ask, method string, into any) error {
	answer, err := ask(ctx, method, nil)
	if err != nil {
		return notExecuted(err)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return &unreadableError{method, err}
	}
	return nil
}
