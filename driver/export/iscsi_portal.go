package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// SPDK v26.05 crashes when a portal group is created on the address and port of an existing portal
// group, because its error path frees uninitialized memory. Reading the portal groups first does
// not prevent this crash, because two controllers can run concurrently during a change of leader.
// Before a call creates the portal group, it therefore creates an initiator group with a special
// tag, the claim. SPDK refuses a second group with this tag. The call removes the claim once the
// portal group exists, or has definitely not been created. If the outcome is unknown or the
// controller dies, the claim remains.
//
// A claim that remains longer than any call can take counts as abandoned. A controller that has
// seen the claim for that long replaces it with its own. To prevent two controllers from replacing
// the claim concurrently, a controller first creates another initiator group, called the removal.
// Each claim has a unique name, so that a new claim is not mistaken for the abandoned one during
// the removal.
const (
	claimTag    = leastTag - 1
	removalTag  = leastTag - 2
	claimName   = "iqn.2026-11.io.spdkgate:portal-group"
	removalName = claimName + "-claim-removal"
)

// DefaultClaimPatience is how long a controller respects another controller's claim. Callers wait
// at most a minute for a target's reply, and proxies wait less. After three minutes, the call of a
// dead controller has been executed or dropped.
const DefaultClaimPatience = 3 * time.Minute

// A claimSeen records another controller's claim, and when this process first saw it.
type claimSeen struct {
	name  string
	since time.Time
}

// ensurePortalGroups returns the tags of the portal groups that listen on the portals. Each portal
// has its own group, because SPDK cannot add a portal to a group. If SPDK refuses to create some
// but not all of the groups, for example because an address is not up, notListening is the reason.
func (i iscsi) ensurePortalGroups(ctx context.Context) (tags []int32, notListening, err error) {
	groups, err := i.portalGroups(ctx)
	if err != nil {
		return nil, nil, err
	}
	var refused []error
	for _, p := range i.Listen {
		tag := portalGroup(groups, p)
		if tag == 0 {
			if tag, err = i.ensurePortalGroup(ctx, p); toleratedBeside(err) {
				refused = append(refused, err)
				continue
			} else if err != nil {
				return nil, nil, err
			}
		}
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	if notListening = errors.Join(refused...); len(tags) == 0 {
		return nil, nil, notListening
	}
	return tags, notListening, nil
}

// ensurePortalGroup returns the tag of the portal group that listens on a portal, and creates the
// group if necessary.
func (i iscsi) ensurePortalGroup(ctx context.Context, at Portal) (int32, error) {
	// Calls in this process wait for each other here. Calls in other processes fail because of the
	// claim.
	select {
	case i.creatingPortal <- struct{}{}:
		defer func() { <-i.creatingPortal }()
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the portal group to be created: %w", ctx.Err())
	}
	groups, err := i.portalGroups(ctx)
	if tag := portalGroup(groups, at); err != nil || tag != 0 {
		return tag, err
	}
	if err := i.claimPortal(ctx, at); err != nil {
		return 0, err
	}
	groups, err = i.portalGroups(ctx)
	if tag := portalGroup(groups, at); err != nil || tag != 0 {
		return tag, firstOf(err, i.releaseClaim(ctx))
	}
	tag, err := i.createPortalGroup(ctx, freePortalGroup(groups), at)
	if err != nil {
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

func (i iscsi) portalGroups(ctx context.Context) ([]spdkrpc.ISCSIPortalGroup, error) {
	groups, err := i.rpc.ISCSIGetPortalGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list portal groups: %w", err)
	}
	return groups, nil
}

// portalGroup returns the tag of the portal group for a portal, or 0 if there is none.
func portalGroup(groups []spdkrpc.ISCSIPortalGroup, at Portal) int32 {
	for _, g := range groups {
		if slices.ContainsFunc(g.Portals, func(p spdkrpc.ISCSIPortal) bool { return at.is(p.Host, p.Port) }) {
			return g.Tag
		}
	}
	return 0
}

// freePortalGroup returns an unused tag.
func freePortalGroup(groups []spdkrpc.ISCSIPortalGroup) int32 {
	free := int32(1)
	for slices.ContainsFunc(groups, func(g spdkrpc.ISCSIPortalGroup) bool { return g.Tag == free }) {
		free++
	}
	return free
}

// claimPortal creates the claim. It fails with ErrBusy if another controller already has the claim.
func (i iscsi) claimPortal(ctx context.Context, at Portal) error {
	var failed error
	for range 3 { // SPDK may refuse the claim because of another claim that is then removed
		if failed = i.createClaim(ctx); failed == nil {
			return nil
		}
		if !readback.Clarifies(failed) {
			break
		}
		name, err := i.claim(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("claim the creation of the portal group by initiator group %d: %w; whether another controller holds the claim is unknown: %w", claimTag, failed, err)
		case name != "" && i.isAbandoned(name):
			return i.replaceClaim(ctx, name, at)
		case name != "":
			return i.claimedError(at)
		}
		if !errors.Is(failed, spdkrpc.InvalidParams) {
			break
		}
	}
	return fmt.Errorf("claim the creation of the portal group by initiator group %d: %w", claimTag, failed)
}

func (i iscsi) claimedError(at Portal) error {
	return fmt.Errorf("%w: another controller is creating the portal group on %s: try again; if it died meanwhile, its claim, initiator group %d, counts as abandoned after %s",
		ErrBusy, at, claimTag, i.ClaimPatience)
}

func (i iscsi) createClaim(ctx context.Context) error {
	return i.rpc.ISCSICreateInitiatorGroup(ctx, spdkrpc.ISCSICreateInitiatorGroupParams{
		Tag: claimTag, Initiators: []string{claimName + ":" + uuid.NewString()}, Netmasks: []string{anyInitiator},
	})
}

// claim returns the name of the claim, or "" if there is no claim.
func (i iscsi) claim(ctx context.Context) (name string, err error) {
	groups, err := i.initiatorGroups(ctx)
	if all := initiators(groups, claimTag); err == nil && len(all) > 0 {
		name = all[0]
	}
	return name, err
}

// isAbandoned reports whether this process has seen the claim for longer than any call can take.
// The caller must hold the token creatingPortal.
func (i iscsi) isAbandoned(name string) bool {
	if i.claimSeen.name != name {
		i.claimSeen = claimSeen{name, time.Now()}
		return false
	}
	return time.Since(i.claimSeen.since) > i.ClaimPatience
}

// replaceClaim removes an abandoned claim and creates a new one for this call.
func (i iscsi) replaceClaim(ctx context.Context, abandoned string, at Portal) (err error) {
	removal := spdkrpc.ISCSICreateInitiatorGroupParams{Tag: removalTag, Initiators: []string{removalName}, Netmasks: []string{anyInitiator}}
	if failed := i.rpc.ISCSICreateInitiatorGroup(ctx, removal); failed != nil {
		return fmt.Errorf("%w: an abandoned claim, initiator group %d, prevents the creation of the portal group, and initiator group %d prevents the removal of the claim: try again; if this error persists, "+
			"a controller died just then: make sure that no controller is running, and delete both with iscsi_delete_initiator_group: %w", ErrBusy, claimTag, removalTag, failed)
	}
	defer func() { err = firstOf(err, i.deleteGroup(ctx, removalTag)) }()
	name, err := i.claim(ctx)
	switch {
	case err != nil:
		return err
	case name != abandoned && name != "": // another controller was faster
		return i.claimedError(at)
	case name == abandoned:
		if err := i.releaseClaim(ctx); err != nil {
			return err
		}
	}
	if err := i.createClaim(ctx); err != nil {
		return fmt.Errorf("claim the creation of the portal group by initiator group %d: %w", claimTag, err)
	}
	return nil
}

func (i iscsi) releaseClaim(ctx context.Context) error { return i.deleteGroup(ctx, claimTag) }

func (i iscsi) deleteGroup(ctx context.Context, tag int32) error {
	return readback.NewStep(fmt.Sprintf("delete initiator group %d", tag), func() error {
		return i.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: tag})
	}, func() (bool, error) {
		now, err := i.rpc.ISCSIGetInitiatorGroups(ctx)
		return err == nil && initiators(now, tag) == nil, err
	}).Run()
}

// createPortalGroup creates the portal group. If the target definitely did not create it,
// createPortalGroup removes the claim; if the call may still be executed, the claim remains. After
// success, the caller removes the claim.
func (i iscsi) createPortalGroup(ctx context.Context, tag int32, at Portal) (int32, error) {
	host := at.Addr
	if at.isIPv6() {
		host = "[" + host + "]"
	}
	failed := i.rpc.ISCSICreatePortalGroup(ctx, spdkrpc.ISCSICreatePortalGroupParams{
		Tag: tag, Portals: []spdkrpc.ISCSIPortal{{Host: host, Port: at.Port}},
	})
	if failed == nil {
		return tag, nil
	}
	failed = fmt.Errorf("create portal group %d on %s: %w", tag, at, failed)
	if spdkrpc.KindOf(failed) != spdkrpc.OutcomeUnknown {
		return 0, firstOf(failed, i.releaseClaim(ctx))
	}
	if groups, err := i.portalGroups(ctx); err == nil && portalGroup(groups, at) != 0 {
		return portalGroup(groups, at), nil
	}
	return 0, failed
}
