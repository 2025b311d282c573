package tenancy

import (
	"context"
	"encoding/json"
)

// count asks the target what the tenant takes up.
func (g *Grant) count(ctx context.Context, ask Ask) (sum amount, err error) {
	q := g.scope.Quota
	seen := &ownershipCheck{scope: g.scope, ask: ask, began: now()}
	if q.Bytes > 0 || q.Volumes > 0 || g.scope.VolumeNQN != "" {
		list, err := seen.list(ctx)
		if err != nil {
			return amount{}, err
		}
		err = eachBdev(list, func(b *bdev) error {
			switch {
			case b.odd:
				return &unreadableError{"bdev_get_bdevs", errNoJSON}
			case !b.lvol:
				return nil
			}
			own, err := seen.ownsBdev(ctx, b)
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
	there := make(map[string]bool, len(subsystems))
	for _, s := range subsystems {
		own, err := seen.owns(ctx, "nqn", s.NQN)
		if err != nil {
			return amount{}, err
		}
		if there[s.NQN] = true; own || g.scope.account.made(s.NQN) {
			sum.subsystems++
		}
	}
	g.scope.account.keep(there)
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
