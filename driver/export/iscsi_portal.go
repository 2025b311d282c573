package export

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// SPDK v26.05 crashes when a portal group is created on an address and port that another portal group has: its error path
// frees what was never set up. Reading before creating is not enough, because two controllers can run at the same time
// while leadership moves. So a call that creates the portal group first creates an initiator group with a special tag, the
// claim. SPDK refuses a second group with this tag. The claim is removed when the portal group exists, or was certainly not
// created. If the outcome is unknown, the claim stays, and no call creates a portal group until the portal group appears or
// an administrator removes the claim.
const (
	claimTag  = leastTag - 1
	claimName = "iqn.2026-11.io.spdkgate:portal-group"
)

// ensurePortalGroup returns the tag of the portal group that listens where nodes connect.
func (i iscsi) ensurePortalGroup(ctx context.Context) (int32, error) {
	tag, _, err := i.portalGroup(ctx)
	if err != nil || tag != 0 {
		return tag, err
	}
	// Calls of this process wait for each other. Calls of other processes are refused, by the claim.
	select {
	case i.creatingPortal <- struct{}{}:
		defer func() { <-i.creatingPortal }()
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the portal group to be created: %w", ctx.Err())
	}
	if tag, _, err = i.portalGroup(ctx); err != nil || tag != 0 {
		return tag, err
	}
	if err := i.claimPortal(ctx); err != nil {
		return 0, err
	}
	tag, free, err := i.portalGroup(ctx)
	if err != nil || tag != 0 {
		return tag, firstOf(err, i.releaseClaim(ctx))
	}
	if tag, err = i.createPortalGroup(ctx, free); err != nil {
		return 0, err
	}
	return tag, i.releaseClaim(ctx)
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// portalGroup returns the tag of the portal group on the configured address and port, or 0 if there is none, and a tag that
// is unused.
func (i iscsi) portalGroup(ctx context.Context) (tag, free int32, err error) {
	groups, err := i.rpc.ISCSIGetPortalGroups(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("list portal groups: %w", err)
	}
	for free = 1; slices.ContainsFunc(groups, func(g spdkrpc.ISCSIPortalGroup) bool { return g.Tag == free }); {
		free++
	}
	for _, g := range groups {
		if slices.ContainsFunc(g.Portals, func(p spdkrpc.ISCSIPortal) bool { return sameAddr(p.Host, i.ListenAddr) && p.Port == i.ListenPort }) {
			return g.Tag, free, nil
		}
	}
	return 0, free, nil
}

// claimPortal creates the claim. It fails with ErrBusy if another controller has it.
func (i iscsi) claimPortal(ctx context.Context) error {
	failed := i.rpc.ISCSICreateInitiatorGroup(ctx, spdkrpc.ISCSICreateInitiatorGroupParams{
		Tag: claimTag, Initiators: []string{claimName}, Netmasks: []string{anyInitiator},
	})
	if failed == nil {
		return nil
	}
	if readback.Clarifies(failed) {
		groups, err := i.rpc.ISCSIGetInitiatorGroups(ctx)
		if err == nil && initiators(groups, claimTag) != nil {
			return fmt.Errorf("%w: the portal group on %s:%s is being created: try again; if this error persists, a controller died while it created the group: make sure that no controller is running, and delete initiator group %d with iscsi_delete_initiator_group",
				ErrBusy, i.ListenAddr, i.ListenPort, claimTag)
		}
	}
	return fmt.Errorf("claim the creation of the portal group by initiator group %d: %w", claimTag, failed)
}

func (i iscsi) releaseClaim(ctx context.Context) error {
	return readback.NewStep(fmt.Sprintf("delete initiator group %d", claimTag), func() error {
		return i.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: claimTag})
	}, func() (bool, error) {
		now, err := i.rpc.ISCSIGetInitiatorGroups(ctx)
		return err == nil && initiators(now, claimTag) == nil, err
	}).Run()
}

// createPortalGroup creates the portal group. It leaves the claim if the call may still be executed.
func (i iscsi) createPortalGroup(ctx context.Context, tag int32) (int32, error) {
	host := i.ListenAddr
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	failed := i.rpc.ISCSICreatePortalGroup(ctx, spdkrpc.ISCSICreatePortalGroupParams{
		Tag: tag, Portals: []spdkrpc.ISCSIPortal{{Host: host, Port: i.ListenPort}},
	})
	if failed == nil {
		return tag, nil
	}
	failed = fmt.Errorf("create portal group %d on %s:%s: %w", tag, host, i.ListenPort, failed)
	if spdkrpc.KindOf(failed) != spdkrpc.OutcomeUnknown {
		return 0, firstOf(failed, i.releaseClaim(ctx))
	}
	if now, _, err := i.portalGroup(ctx); err == nil && now != 0 {
		return now, nil
	}
	return 0, failed
}
