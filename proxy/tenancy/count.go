package tenancy

import (
	"context"
	"encoding/json"
)

// countVolumes counts the tenant's volumes at the target.
func (g *Grant) countVolumes(ctx context.Context, ask Ask) (sum amount, err error) {
	check := &ownershipCheck{scope: g.scope, ask: ask, began: now()}
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
	return sum, err
}

// countExports counts, at the target, the tenant's subsystems, hosts and listeners.
func (g *Grant) countExports(ctx context.Context, ask Ask) (sum amount, err error) {
	check := &ownershipCheck{scope: g.scope, ask: ask, began: now()}
	var subsystems []struct {
		NQN       string     `json:"nqn"`
		Hosts     []struct{} `json:"hosts"`
		Listeners []struct{} `json:"listen_addresses"`
	}
	if err := query(ctx, ask, "nvmf_get_subsystems", &subsystems); err != nil {
		return amount{}, err
	}
	account := g.scope.exports
	existing := make(map[string]bool, len(subsystems))
	for _, s := range subsystems {
		own, err := check.owns(ctx, "nqn", s.NQN)
		if err != nil {
			return amount{}, err
		}
		if existing[s.NQN] = true; own || account.changed(s.NQN) {
			sum = sum.plus(amount{subsystems: 1, hosts: uint64(len(s.Hosts)), listeners: uint64(len(s.Listeners))})
		}
	}
	account.forgetSubsystems(existing)
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
