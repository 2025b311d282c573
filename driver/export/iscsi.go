package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// iscsi exports volumes over iSCSI. Each volume is LUN 0 of its own target node. Pairs of a portal
// group and an initiator group determine which initiators may log in. All exports of a target share
// its portal groups, one for each portal. Each node has its own initiator group, which is removed
// when no target node refers to it.
//
// SPDK cannot return a single iSCSI object, only a list of all objects (even on its master branch).
// An export therefore tries to create the target node without reading the list. It reads the list
// only if SPDK refuses because the target node already exists.
type iscsi struct{ *Service }

const (
	iscsiQueueDepth = 64 // as in SPDK's spdk-csi, and SPDK's own default
	anyInitiator    = "ANY"
	leastTag        = 1000 // the lowest tag of initiator groups that this package creates; lower tags are for administrators
)

func (i iscsi) admit(ctx context.Context, id string, h Host, mayExport func(context.Context) error) (Admission, error) {
	if err := i.checkAuthenticates(h); err != nil {
		return Admission{}, err
	}
	if err := mayExport(ctx); err != nil {
		return Admission{}, err
	}
	leave, err := i.groups.enter(ctx, h.IQN)
	if err != nil {
		return Admission{}, err
	}
	defer leave()
	var missing savedISCSI
	var unsaved error
	var waiting sync.WaitGroup
	waiting.Go(func() { missing, unsaved = i.saved(ctx) })
	portals, notListening, err := i.ensurePortalGroups(ctx)
	waiting.Wait()
	if err := errors.Join(err, unsaved); err != nil {
		return Admission{}, err
	}
	if err := missing.checkMayAdmit(i, id, h); err != nil {
		return Admission{}, err
	}
	groups, err := i.initiatorGroups(ctx)
	if err != nil {
		return Admission{}, err
	}
	if isFenced(groups, h) {
		// An earlier call may have admitted the host while it was being fenced.
		return Admission{}, errors.Join(i.fencedError(h), i.withdraw(ctx, id, &h))
	}
	if initiators(groups, claimTag) != nil { // the claim of a controller that died after it had created the portal group
		if err := i.releaseClaim(ctx); err != nil {
			return Admission{}, err
		}
	}
	ig, err := i.ensureInitiatorGroup(ctx, groups, h)
	if err != nil {
		return Admission{}, err
	}
	own := mapsOf(portals, ig)
	auth, err := i.ensureAuthGroup(ctx, id, h.Keys)
	if err != nil {
		return Admission{}, err
	}
	failed := i.create(ctx, id, own, h, auth)
	switch {
	case failed != nil && !readback.Clarifies(failed):
		return Admission{}, fmt.Errorf("create iSCSI target %s: %w", IQN(id), failed)
	case failed != nil:
		if err := i.takeOver(ctx, id, own, h, auth, failed); err != nil {
			return Admission{}, err
		}
	}
	// Another controller may have removed the initiator group, or reassigned its tag to another
	// node, so the group must be read again.
	waiting.Go(func() { missing, unsaved = i.saved(ctx) })
	groups, err = i.initiatorGroups(ctx)
	waiting.Wait()
	if err := errors.Join(err, unsaved); err != nil {
		return Admission{}, err
	}
	if isFenced(groups, h) {
		return Admission{}, errors.Join(i.fencedError(h), i.withdraw(ctx, id, &h))
	}
	if err := missing.checkMayAdmit(i, id, h); err != nil { // the target has restarted in the meantime
		return Admission{}, errors.Join(err, i.withdraw(ctx, id, &h))
	}
	if initiatorGroup(groups, h) != ig {
		return Admission{}, fmt.Errorf("%w: initiator group %d changed during the call: try again", ErrBusy, ig)
	}
	return Admission{NotListening: notListening}, nil
}

// mapsOf returns the mappings that allow an initiator group to log in at these portal groups.
func mapsOf(portals []int32, ig int32) []spdkrpc.ISCSIPGIGMap {
	maps := make([]spdkrpc.ISCSIPGIGMap, len(portals))
	for k, pg := range portals {
		maps[k] = spdkrpc.ISCSIPGIGMap{PGTag: pg, IGTag: ig}
	}
	return maps
}

// create creates the volume's target node. If the host has no keys, auth is 0.
func (i iscsi) create(ctx context.Context, id string, own []spdkrpc.ISCSIPGIGMap, h Host, auth int32) error {
	p := spdkrpc.ISCSICreateTargetNodeParams{
		Name: IQN(id), AliasName: id, PGIGMaps: own,
		LUNs: []spdkrpc.ISCSILUNParams{{BdevName: id, LUNID: new(int32(0))}}, QueueDepth: iscsiQueueDepth, DisableCHAP: new(h.Keys == nil),
	}
	if h.Keys != nil {
		p.RequireCHAP, p.MutualCHAP, p.CHAPGroup = new(true), new(h.Keys.Both()), &auth
	}
	return i.rpc.ISCSICreateTargetNode(ctx, p)
}

// takeOver changes an existing target node so that it exports the volume only to h.
func (i iscsi) takeOver(ctx context.Context, id string, own []spdkrpc.ISCSIPGIGMap, h Host, auth int32, failed error) error {
	now, err := i.read(ctx, id)
	if err != nil {
		return err
	}
	if now.node == nil {
		return fmt.Errorf("create iSCSI target %s: %w", IQN(id), failed)
	}
	if err := i.checkMayAdmit(ctx, id, now.node, now.groups, h); err != nil {
		return err
	}
	if h.Keys != nil && !now.node.RequireCHAP {
		// Sessions that were created without authentication end only when the target node is
		// deleted.
		if err := i.delete(ctx, id); err != nil {
			return err
		}
		if err := i.create(ctx, id, own, h, auth); err != nil {
			return fmt.Errorf("create iSCSI target %s: %w", IQN(id), err)
		}
		return nil
	}
	if err := readback.RunAll(i.missingSteps(ctx, id, now.node, own, h, auth)); err != nil {
		return err
	}
	if now, err = i.read(ctx, id); err != nil {
		return err
	}
	if now.node == nil {
		return fmt.Errorf("%w: iSCSI target %s was deleted during the call: try again", ErrBusy, IQN(id))
	}
	if left := i.missingSteps(ctx, id, now.node, own, h, auth); len(left) > 0 {
		return fmt.Errorf("%w: the target node changed during the call, and the step %q must be repeated: try again", ErrBusy, left[0].What)
	}
	if h.Keys == nil {
		return nil
	}
	return i.removeAuthGroups(ctx, id, auth)
}

// checkMayAdmit fails if a host other than h could be writing to the volume, or if the target node
// exports another bdev.
func (i iscsi) checkMayAdmit(ctx context.Context, id string, node *spdkrpc.ISCSITargetNode, groups []spdkrpc.ISCSIInitiatorGroup, h Host) error {
	if node == nil {
		return nil
	}
	for _, l := range node.LUNs {
		if l.BdevName != id {
			return fmt.Errorf("%w: iSCSI target %s exports bdev %s: remove that bdev from it; targets with this name are reserved for the driver", ErrForeign, node.Name, l.BdevName)
		}
	}
	open := false
	for _, m := range node.PGIGMaps {
		for _, name := range initiators(groups, m.IGTag) {
			switch name {
			case h.IQN:
			case anyInitiator:
				open = true
			default:
				return fmt.Errorf("%w: the volume is published to initiator %s: unpublish it there first", ErrInUse, name)
			}
		}
	}
	if !open {
		return nil
	}
	return i.checkNobodyConnected(ctx, id)
}

func (i iscsi) checkNobodyConnected(ctx context.Context, id string) error {
	connections, err := i.rpc.ISCSIGetConnections(ctx)
	if err != nil {
		return fmt.Errorf("list iSCSI connections: %w", err)
	}
	for _, c := range connections {
		if c.TargetNodeName == id || c.TargetNodeName == IQN(id) {
			return fmt.Errorf("%w: an initiator at %s is logged in: log it out first", ErrInUse, c.InitiatorAddr)
		}
	}
	return nil
}

// missingSteps lists the steps needed to make the target node export the volume to one initiator
// group alone, through the mappings in own. Mappings of that group to portal groups of an earlier
// configuration remain, because the host may be logged in there. They are removed together with the
// target node.
func (i iscsi) missingSteps(ctx context.Context, id string, node *spdkrpc.ISCSITargetNode, own []spdkrpc.ISCSIPGIGMap, h Host, auth int32) []readback.Step {
	name := IQN(id)
	done := func(ok func(*spdkrpc.ISCSITargetNode) bool) func() (bool, error) {
		return func() (bool, error) {
			now, err := i.read(ctx, id)
			return err == nil && now.node != nil && ok(now.node), err
		}
	}
	var steps []readback.Step
	if !h.requires(node, auth) {
		steps = append(steps, i.authStep(ctx, id, h, auth))
	}
	if len(node.LUNs) == 0 {
		steps = append(steps, readback.NewStep("add LUN 0", func() error {
			return i.rpc.ISCSITargetNodeAddLUN(ctx, spdkrpc.ISCSITargetNodeAddLUNParams{Name: name, BdevName: id, LUNID: new(int32(0))})
		}, done(func(now *spdkrpc.ISCSITargetNode) bool { return len(now.LUNs) == 1 })))
	}
	if missing := missingMaps(node, own); len(missing) > 0 {
		steps = append(steps, readback.NewStep("admit the node's initiator group", func() error {
			return i.rpc.ISCSITargetNodeAddPGIGMaps(ctx, spdkrpc.ISCSITargetNodeAddPGIGMapsParams{Name: name, PGIGMaps: missing})
		}, done(func(now *spdkrpc.ISCSITargetNode) bool { return len(missingMaps(now, own)) == 0 })))
	}
	for _, other := range node.PGIGMaps {
		if other.IGTag != own[0].IGTag {
			steps = append(steps, i.unmap(ctx, id, other))
		}
	}
	return steps
}

func missingMaps(node *spdkrpc.ISCSITargetNode, maps []spdkrpc.ISCSIPGIGMap) (missing []spdkrpc.ISCSIPGIGMap) {
	for _, m := range maps {
		if !mapsTo(node, m) {
			missing = append(missing, m)
		}
	}
	return missing
}

func mapsTo(node *spdkrpc.ISCSITargetNode, m spdkrpc.ISCSIPGIGMap) bool {
	return slices.Contains(node.PGIGMaps, m)
}

func (i iscsi) unmap(ctx context.Context, id string, m spdkrpc.ISCSIPGIGMap) readback.Step {
	return readback.NewStep(fmt.Sprintf("withdraw the admission of initiator group %d", m.IGTag), func() error {
		return i.rpc.ISCSITargetNodeRemovePGIGMaps(ctx, spdkrpc.ISCSITargetNodeRemovePGIGMapsParams{Name: IQN(id), PGIGMaps: []spdkrpc.ISCSIPGIGMap{m}})
	}, func() (bool, error) {
		now, err := i.read(ctx, id)
		return err == nil && (now.node == nil || !mapsTo(now.node, m)), err
	})
}

func (i iscsi) withdraw(ctx context.Context, id string, h *Host) error {
	now, err := i.read(ctx, id)
	if err != nil {
		return err
	}
	node, others, gone := now.node, now.others(id), true
	if node != nil {
		if gone, err = i.withdrawFrom(ctx, id, node, now.groups, h); err != nil {
			return err
		}
		if !gone {
			others = now.nodes
		}
	}
	if gone && mayHaveAuthGroups(node, h) {
		if err := i.removeAuthGroups(ctx, id, 0); err != nil {
			return err
		}
	}
	missing, err := i.withdrawSaved(ctx, id, h)
	if err != nil {
		return err
	}
	// If the volume's target node is already deleted, only the host's name identifies the initiator
	// group to remove.
	return i.removeUnusedGroups(ctx, slices.DeleteFunc(now.groups, func(g spdkrpc.ISCSIInitiatorGroup) bool {
		had := node != nil && slices.ContainsFunc(node.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return m.IGTag == g.Tag })
		return missing.uses(g) || !had && (h == nil || !holds(g, h.IQN))
	}), others)
}

// withdrawFrom deletes the target node unless it exports the volume to a host other than h, and
// reports whether it deleted the target node.
func (i iscsi) withdrawFrom(ctx context.Context, id string, node *spdkrpc.ISCSITargetNode, groups []spdkrpc.ISCSIInitiatorGroup, h *Host) (gone bool, err error) {
	if h == nil {
		return true, i.delete(ctx, id)
	}
	for _, m := range node.PGIGMaps {
		others := slices.DeleteFunc(slices.Clone(initiators(groups, m.IGTag)), func(name string) bool { return name == h.IQN })
		switch {
		case slices.Contains(others, anyInitiator):
			// This target node was created by SPDK's spdk-csi, and a node may still be using it.
			if err := i.checkNobodyConnected(ctx, id); err != nil {
				return false, err
			}
		case len(others) > 0:
			return false, nil // another node is admitted, so h is not: only one node can be admitted
		}
	}
	return true, i.delete(ctx, id)
}

func (i iscsi) removeUnused(ctx context.Context, id string) error {
	now, err := i.read(ctx, id)
	if err != nil {
		return err
	}
	if now.node == nil {
		_, err := i.withdrawSaved(ctx, id, nil)
		return err
	}
	for _, m := range now.node.PGIGMaps {
		for _, name := range initiators(now.groups, m.IGTag) {
			if name != anyInitiator {
				return fmt.Errorf("%w: the volume is published to initiator %s: unpublish it first", ErrInUse, name)
			}
		}
	}
	if err := i.checkNobodyConnected(ctx, id); err != nil {
		return err
	}
	if err := i.delete(ctx, id); err != nil {
		return err
	}
	if !mayHaveAuthGroups(now.node, nil) {
		return nil
	}
	return i.removeAuthGroups(ctx, id, 0)
}

func (i iscsi) exists(ctx context.Context, id string) (bool, error) {
	now, err := i.read(ctx, id)
	return now.node != nil, err
}

func (i iscsi) delete(ctx context.Context, id string) error { return i.deleteNamed(ctx, IQN(id)) }

func (i iscsi) deleteNamed(ctx context.Context, name string) error {
	return readback.NewStep("delete iSCSI target "+name, func() error {
		return i.rpc.ISCSIDeleteTargetNode(ctx, spdkrpc.ISCSIDeleteTargetNodeParams{Name: name})
	}, func() (bool, error) {
		now, err := i.read(ctx, "")
		return err == nil && !slices.ContainsFunc(now.nodes, func(n spdkrpc.ISCSITargetNode) bool { return n.Name == name }), err
	}).Run()
}
