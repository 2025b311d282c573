package tenancy

import (
	"context"
	"encoding/json"
)

// countVolumes counts the tenant's volumes on the target.
func (s *Scope) countVolumes(ctx context.Context, ask Ask) (amount, error) {
	check := &ownershipCheck{scope: s, ask: ask, began: now()}
	list, err := check.list(ctx)
	if err != nil {
		return amount{}, err
	}
	return check.countVolumes(ctx, list)
}

// countVolumes counts the tenant's volumes in a list of all bdevs.
func (v *ownershipCheck) countVolumes(ctx context.Context, list string) (sum amount, err error) {
	err = eachBdev(list, func(b *bdev) error {
		switch {
		case b.ambiguous:
			return &unreadableError{"bdev_get_bdevs", errNoJSON}
		case !b.lvol:
			return nil
		}
		own, err := v.ownsBdev(ctx, b)
		if own {
			sum = sum.plus(amount{bytes: b.size(), volumes: 1})
		}
		return err
	})
	return sum, err
}

// exportLists contains the target's exports.
type exportLists struct {
	subsystems []struct {
		NQN       string     `json:"nqn"`
		Hosts     []struct{} `json:"hosts"`
		Listeners []struct{} `json:"listen_addresses"`
	}
	nodes []struct { // iSCSI targets
		Name string `json:"name"`
	}
}

// readExports reads the target's exports. It includes iSCSI targets only if iscsi is set, which is
// required if iSCSI targets can belong to tenants.
func readExports(ctx context.Context, ask Ask, iscsi bool) (l exportLists, err error) {
	if err := query(ctx, ask, "nvmf_get_subsystems", &l.subsystems); err != nil || !iscsi {
		return l, err
	}
	return l, query(ctx, ask, "iscsi_get_target_nodes", &l.nodes)
}

// countExports counts the tenant's subsystems, hosts and listeners on the target. It removes
// subsystems that no longer exist from the account.
func (s *Scope) countExports(ctx context.Context, ask Ask) (amount, error) {
	check := &ownershipCheck{scope: s, ask: ask, began: now()}
	list, err := readExports(ctx, ask, len(s.IQNPrefixes) > 0)
	if err != nil {
		return amount{}, err
	}
	sum, err := check.countExports(ctx, list)
	if err != nil {
		return amount{}, err
	}
	existing := make(map[string]bool, len(list.subsystems))
	for _, one := range list.subsystems {
		existing[one.NQN] = true
	}
	s.exports.forgetSubsystems(existing)
	return sum, nil
}

// countExports counts the tenant's subsystems, hosts and listeners in a list.
func (v *ownershipCheck) countExports(ctx context.Context, list exportLists) (sum amount, err error) {
	for _, s := range list.subsystems {
		own, err := v.owns(ctx, "nqn", s.NQN)
		if err != nil {
			return amount{}, err
		}
		if own || v.scope.exports.changed(s.NQN) {
			sum = sum.plus(amount{subsystems: 1, hosts: uint64(len(s.Hosts)), listeners: uint64(len(s.Listeners))})
		}
	}
	for _, n := range list.nodes {
		if v.scope.ownsNamed("iqn", n.Name) {
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
