package exports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Withdrawal describes the export to withdraw, or which of its hosts to remove.
type Withdrawal struct {
	Volume string   // LVSTORE/LVOL or UUID
	NQN    string   // as in Request
	Hosts  []string // if empty, the whole export is withdrawn
	// Disconnect permits closing connections.
	Disconnect bool
}

// PlanWithdrawal plans the withdrawal of an export, or the removal of some of its hosts. If no host
// would remain, the whole export is withdrawn. If there is nothing to withdraw, the plan has no
// steps.
func PlanWithdrawal(ctx context.Context, rpc *spdkrpc.Client, w Withdrawal) (*Plan, error) {
	t := target{rpc}
	v, err := t.volume(ctx, w.Volume)
	if errors.Is(err, spdkrpc.NoSuchDevice) && len(w.Hosts) == 0 {
		return t.planOrphan(ctx, w, err)
	}
	if err != nil {
		return nil, err
	}
	subsystems, _, err := t.subsystems(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{Volume: v.name, volume: v}
	sub := exporting(subsystems, v)
	if sub == nil {
		return p, nil
	}
	p.NQN = sub.NQN
	requested := w.NQN
	if requested != "" {
		requested = Request{NQN: w.NQN}.nqn(v.uuid)
	}
	if err := checkNamed(sub, v, requested); err != nil {
		return nil, err
	}
	var leaving []string
	for _, h := range w.Hosts {
		if hostIn(sub, h) != nil {
			leaving = append(leaving, h)
		}
	}
	whole := len(w.Hosts) == 0
	switch {
	case !whole && sub.AllowAnyHost:
		return nil, refuse("%s admits every host, so no single host can be withdrawn: withdraw the whole export (spdk-proxy unexport %s)", sub.NQN, v.name)
	case !whole && len(leaving) == 0:
		return p, nil
	case !whole:
		whole = len(leaving) == len(sub.Hosts)
	}
	if !w.Disconnect {
		if err := t.checkNotConnected(ctx, sub.NQN, leaving, whole); err != nil {
			return nil, err
		}
	}
	p.warnDriver()
	if whole {
		p.Steps = append(p.Steps, *t.deletion(sub.NQN))
	} else {
		for _, h := range leaving {
			p.Steps = append(p.Steps, *t.removal(sub.NQN, h))
			p.last().stays = true
		}
	}
	var keys []string
	for _, h := range sub.Hosts {
		if (whole || slices.Contains(leaving, h.NQN)) && h.DHCHAPKey != nil && !slices.Contains(keys, *h.DHCHAPKey) {
			keys = append(keys, *h.DHCHAPKey)
		}
	}
	if len(keys) > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the target's keyring keeps these keys: %s. Remove those that no export needs (spdk-proxy call spdkgate_key_remove name=NAME)", strings.Join(keys, ", ")))
	}
	return p, nil
}

// planOrphan plans the deletion of the subsystem that exported a deleted volume. SPDK keeps such a
// subsystem, without a namespace. missing is the error returned for the volume.
func (t target) planOrphan(ctx context.Context, w Withdrawal, missing error) (*Plan, error) {
	_, notUUID := uuid.Parse(w.Volume)
	missing = fmt.Errorf("%w. To withdraw the export of a deleted volume, add --nqn with its NQN, which spdk-proxy exports lists", missing)
	if notUUID != nil && (w.NQN == "" || strings.HasSuffix(w.NQN, ":")) {
		return nil, missing
	}
	p := &Plan{Volume: w.Volume, NQN: Request{NQN: w.NQN}.nqn(w.Volume)}
	subsystems, _, err := t.subsystems(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(subsystems, func(s spdkrpc.NVMfSubsystem) bool { return s.NQN == p.NQN })
	switch {
	case i < 0:
		return nil, missing
	case len(subsystems[i].Namespaces) > 0:
		return nil, refuse("no volume %s is visible to this user, and %s exports %s: name that volume", w.Volume, p.NQN, subsystems[i].Namespaces[0].BdevName)
	}
	p.warnDriver()
	p.Steps = append(p.Steps, *t.deletion(p.NQN))
	return p, nil
}

// checkNotConnected returns an error if one of the hosts is connected or, if whole is set, if any
// host is connected.
func (t target) checkNotConnected(ctx context.Context, nqn string, hosts []string, whole bool) error {
	connected, err := t.connected(ctx, nqn)
	if err != nil {
		return err
	}
	for _, h := range connected {
		if whole || slices.Contains(hosts, h) {
			return refuse("host %s is connected to %s, and would lose the volume and the data that it has not written yet. On the host, unmount the volume and disconnect (nvme disconnect -n %s). If the host is lost, use --disconnect", h, nqn, quote(nqn))
		}
	}
	return nil
}

// connected returns the hosts connected to a subsystem, without duplicates.
func (t target) connected(ctx context.Context, nqn string) (hosts []string, err error) {
	controllers, err := t.rpc.NVMfSubsystemGetControllers(ctx, spdkrpc.NVMfSubsystemGetControllersParams{NQN: nqn})
	if err != nil {
		return nil, fmt.Errorf("list the hosts connected to %s: %w", nqn, err)
	}
	for _, c := range controllers {
		if !slices.Contains(hosts, c.Hostnqn) {
			hosts = append(hosts, c.Hostnqn)
		}
	}
	slices.Sort(hosts)
	return hosts, nil
}

// gone reports whether an error means that a subsystem no longer exists.
func gone(err error) bool {
	return errors.Is(err, spdkrpc.NoSuchDevice) || errors.Is(err, spdkrpc.InvalidParams)
}
