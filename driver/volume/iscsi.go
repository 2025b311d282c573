package volume

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// iscsi exports volumes over iSCSI: a target node for each, whose LUN 0 is the volume. Who may log in is said by pairs of
// portal group and initiator group. The portal group is the target's; each node has an initiator group of its own, which
// goes when no target node names it any more.
//
// SPDK lists these objects only all at once, and v26.05 ends when a portal group is created that is there already: so
// changes happen under the target's lock, one read before each.
type iscsi struct{ *Service }

const (
	iscsiQueueDepth = 64 // as spdk-csi has it; SPDK's own default
	anyInitiator    = "ANY"
	leastTag        = 1000 // of the initiator groups that are made here; lower ones are left to people
)

func (i iscsi) admit(ctx context.Context, id string, h Host) error {
	i.shared.Lock()
	defer i.shared.Unlock()
	pg, err := i.ensurePortalGroup(ctx)
	if err != nil {
		return err
	}
	groups, node, err := i.read(ctx, id)
	if err != nil {
		return err
	}
	if err := i.mayAdmit(ctx, id, node, groups, h); err != nil {
		return err
	}
	ig, err := i.ensureInitiatorGroup(ctx, groups, h)
	if err != nil {
		return err
	}
	own := spdkrpc.IscsiPGIGMap{PgTag: pg, IgTag: ig}
	if err := runAll(i.missing(ctx, id, node, own)); err != nil {
		return err
	}
	if _, node, err = i.read(ctx, id); err != nil {
		return err
	}
	if left := i.missing(ctx, id, node, own); len(left) > 0 {
		return fmt.Errorf("%w: the target node changed meanwhile, %q is to be done again: try again", ErrBusy, left[0].what)
	}
	return nil
}

// mayAdmit refuses if anybody but h could be writing to the volume, or the target node is not the volume's.
func (i iscsi) mayAdmit(ctx context.Context, id string, node *spdkrpc.IscsiTargetNode, groups []spdkrpc.IscsiInitiatorGroup, h Host) error {
	if node == nil {
		return nil
	}
	for _, l := range node.LUNs {
		if l.BdevName != id {
			return fmt.Errorf("%w: iSCSI target %s holds bdev %s: remove it, this target is the driver's", ErrForeignExport, node.Name, l.BdevName)
		}
	}
	open := false
	for _, m := range node.PgIgMaps {
		for _, name := range initiators(groups, m.IgTag) {
			switch name {
			case h.IQN:
			case anyInitiator:
				open = true
			default:
				return fmt.Errorf("%w: it is published to initiator %s: unpublish it there first", ErrInUse, name)
			}
		}
	}
	if !open {
		return nil
	}
	return i.nobodyConnected(ctx, id)
}

func (i iscsi) nobodyConnected(ctx context.Context, id string) error {
	connections, err := i.rpc.IscsiGetConnections(ctx)
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

// missing lists the steps between what there is and a volume that only the pair own leads to.
func (i iscsi) missing(ctx context.Context, id string, node *spdkrpc.IscsiTargetNode, own spdkrpc.IscsiPGIGMap) []step {
	name := IQN(id)
	done := func(ok func(*spdkrpc.IscsiTargetNode) bool) func() (bool, error) {
		return func() (bool, error) {
			_, now, err := i.read(ctx, id)
			return err == nil && now != nil && ok(now), err
		}
	}
	if node == nil {
		return []step{{"create iSCSI target " + name, func() error {
			return i.rpc.IscsiCreateTargetNode(ctx, spdkrpc.IscsiCreateTargetNodeParams{
				Name: name, AliasName: id, PgIgMaps: []spdkrpc.IscsiPGIGMap{own},
				LUNs: []spdkrpc.IscsiLUNParams{{BdevName: id, LUNID: new(int32(0))}}, QueueDepth: iscsiQueueDepth, DisableCHAP: new(true),
			})
		}, done(func(now *spdkrpc.IscsiTargetNode) bool { return leadsTo(now, own) })}}
	}
	var steps []step
	if len(node.LUNs) == 0 {
		steps = append(steps, step{"add LUN 0", func() error {
			return i.rpc.IscsiTargetNodeAddLUN(ctx, spdkrpc.IscsiTargetNodeAddLUNParams{Name: name, BdevName: id, LUNID: new(int32(0))})
		}, done(func(now *spdkrpc.IscsiTargetNode) bool { return len(now.LUNs) == 1 })})
	}
	if !leadsTo(node, own) {
		steps = append(steps, step{"admit the node's initiator group", func() error {
			return i.rpc.IscsiTargetNodeAddPgIgMaps(ctx, spdkrpc.IscsiTargetNodeAddPgIgMapsParams{Name: name, PgIgMaps: []spdkrpc.IscsiPGIGMap{own}})
		}, done(func(now *spdkrpc.IscsiTargetNode) bool { return leadsTo(now, own) })})
	}
	for _, other := range node.PgIgMaps {
		if other != own {
			steps = append(steps, i.unmap(ctx, id, other))
		}
	}
	return steps
}

func leadsTo(node *spdkrpc.IscsiTargetNode, m spdkrpc.IscsiPGIGMap) bool {
	return slices.Contains(node.PgIgMaps, m)
}

func (i iscsi) unmap(ctx context.Context, id string, m spdkrpc.IscsiPGIGMap) step {
	return step{fmt.Sprintf("withdraw the admission of initiator group %d", m.IgTag), func() error {
		return i.rpc.IscsiTargetNodeRemovePgIgMaps(ctx, spdkrpc.IscsiTargetNodeRemovePgIgMapsParams{Name: IQN(id), PgIgMaps: []spdkrpc.IscsiPGIGMap{m}})
	}, func() (bool, error) {
		_, now, err := i.read(ctx, id)
		return err == nil && (now == nil || !leadsTo(now, m)), err
	}}
}

// ensurePortalGroup returns the tag of the portal group that listens where nodes connect.
func (i iscsi) ensurePortalGroup(ctx context.Context) (int32, error) {
	find := func() (tag, free int32, err error) {
		groups, err := i.rpc.IscsiGetPortalGroups(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("list portal groups: %w", err)
		}
		for free = 1; slices.ContainsFunc(groups, func(g spdkrpc.IscsiPortalGroup) bool { return g.Tag == free }); {
			free++
		}
		for _, g := range groups {
			if slices.ContainsFunc(g.Portals, func(p spdkrpc.IscsiPortal) bool { return sameAddr(p.Host, i.ListenAddr) && p.Port == i.ListenPort }) {
				return g.Tag, free, nil
			}
		}
		return 0, free, nil
	}
	tag, free, err := find()
	if err != nil || tag != 0 {
		return tag, err
	}
	host := i.ListenAddr
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	err = step{fmt.Sprintf("create portal group %d on %s:%s", free, host, i.ListenPort), func() error {
		return i.rpc.IscsiCreatePortalGroup(ctx, spdkrpc.IscsiCreatePortalGroupParams{
			Tag: free, Portals: []spdkrpc.IscsiPortal{{Host: host, Port: i.ListenPort}},
		})
	}, func() (bool, error) {
		tag, _, err := find()
		return tag == free, err
	}}.run()
	return free, err
}

// ensureInitiatorGroup returns the tag of the group that holds the node's initiator name and nothing else.
func (i iscsi) ensureInitiatorGroup(ctx context.Context, groups []spdkrpc.IscsiInitiatorGroup, h Host) (int32, error) {
	if tag := initiatorGroup(groups, h); tag != 0 {
		return tag, nil
	}
	tag := freeTag(groups, h)
	err := step{fmt.Sprintf("create initiator group %d for %s", tag, h.IQN), func() error {
		return i.rpc.IscsiCreateInitiatorGroup(ctx, spdkrpc.IscsiCreateInitiatorGroupParams{
			Tag: tag, Initiators: []string{h.IQN}, Netmasks: []string{anyInitiator},
		})
	}, func() (bool, error) {
		now, err := i.rpc.IscsiGetInitiatorGroups(ctx)
		return initiatorGroup(now, h) == tag, err
	}}.run()
	return tag, err
}

func initiatorGroup(groups []spdkrpc.IscsiInitiatorGroup, h Host) int32 {
	for _, g := range groups {
		if holds(g, h.IQN) {
			return g.Tag
		}
	}
	return 0
}

// holds tells whether the group is one that this package makes, for one initiator at any address.
func holds(g spdkrpc.IscsiInitiatorGroup, initiator ...string) bool {
	return len(initiator) == 1 && initiator[0] != anyInitiator && slices.Equal(g.Initiators, initiator) && slices.Equal(g.Netmasks, []string{anyInitiator})
}

// freeTag picks a tag that repeated calls, and calls of other controllers, pick for this node too.
func freeTag(groups []spdkrpc.IscsiInitiatorGroup, h Host) int32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(h.IQN))
	tag := leastTag + int32(sum.Sum32()%(1<<30))
	for slices.ContainsFunc(groups, func(g spdkrpc.IscsiInitiatorGroup) bool { return g.Tag == tag }) {
		tag++
	}
	return tag
}

func initiators(groups []spdkrpc.IscsiInitiatorGroup, tag int32) []string {
	for _, g := range groups {
		if g.Tag == tag {
			return g.Initiators
		}
	}
	return nil
}

func (i iscsi) withdraw(ctx context.Context, id string, h *Host) error {
	i.shared.Lock()
	defer i.shared.Unlock()
	groups, node, err := i.read(ctx, id)
	if err != nil {
		return err
	}
	if node != nil {
		if err := i.withdrawFrom(ctx, id, node, groups, h); err != nil {
			return err
		}
	}
	// Of a volume whose target node is gone already, only the host tells which group it had.
	return i.removeUnused(ctx, slices.DeleteFunc(groups, func(g spdkrpc.IscsiInitiatorGroup) bool {
		had := node != nil && slices.ContainsFunc(node.PgIgMaps, func(m spdkrpc.IscsiPGIGMap) bool { return m.IgTag == g.Tag })
		return !had && (h == nil || !holds(g, h.IQN))
	}))
}

func (i iscsi) withdrawFrom(ctx context.Context, id string, node *spdkrpc.IscsiTargetNode, groups []spdkrpc.IscsiInitiatorGroup, h *Host) error {
	if h == nil {
		return i.delete(ctx, id)
	}
	for _, m := range node.PgIgMaps {
		others := slices.DeleteFunc(slices.Clone(initiators(groups, m.IgTag)), func(name string) bool { return name == h.IQN })
		switch {
		case slices.Contains(others, anyInitiator):
			// spdk-csi made it, and a node may be using it still.
			if err := i.nobodyConnected(ctx, id); err != nil {
				return err
			}
		case len(others) > 0:
			return nil // of another node: there is one at a time, so this one has no share in it
		}
	}
	return i.delete(ctx, id)
}

func (i iscsi) retract(ctx context.Context, id string) error {
	i.shared.Lock()
	defer i.shared.Unlock()
	groups, node, err := i.read(ctx, id)
	if err != nil || node == nil {
		return err
	}
	for _, m := range node.PgIgMaps {
		for _, name := range initiators(groups, m.IgTag) {
			if name != anyInitiator {
				return fmt.Errorf("%w: it is published to initiator %s: unpublish it first", ErrInUse, name)
			}
		}
	}
	if err := i.nobodyConnected(ctx, id); err != nil {
		return err
	}
	return i.delete(ctx, id)
}

func (i iscsi) exported(ctx context.Context, id string) (bool, error) {
	_, node, err := i.read(ctx, id)
	return node != nil, err
}

func (i iscsi) delete(ctx context.Context, id string) error {
	return step{"delete iSCSI target " + IQN(id), func() error {
		return i.rpc.IscsiDeleteTargetNode(ctx, spdkrpc.IscsiDeleteTargetNodeParams{Name: IQN(id)})
	}, func() (bool, error) {
		_, node, err := i.read(ctx, id)
		return err == nil && node == nil, err
	}}.run()
}

// removeUnused removes those of the initiator groups that this package made and that nothing names any more.
func (i iscsi) removeUnused(ctx context.Context, groups []spdkrpc.IscsiInitiatorGroup) error {
	nodes, err := i.rpc.IscsiGetTargetNodes(ctx)
	if err != nil {
		return fmt.Errorf("list iSCSI targets: %w", err)
	}
	for _, g := range groups {
		used := slices.ContainsFunc(nodes, func(n spdkrpc.IscsiTargetNode) bool {
			return slices.ContainsFunc(n.PgIgMaps, func(m spdkrpc.IscsiPGIGMap) bool { return m.IgTag == g.Tag })
		})
		if used || g.Tag < leastTag || !holds(g, g.Initiators...) {
			continue
		}
		err := step{fmt.Sprintf("delete initiator group %d", g.Tag), func() error {
			return i.rpc.IscsiDeleteInitiatorGroup(ctx, spdkrpc.IscsiDeleteInitiatorGroupParams{Tag: g.Tag})
		}, func() (bool, error) {
			now, err := i.rpc.IscsiGetInitiatorGroups(ctx)
			return err == nil && initiators(now, g.Tag) == nil, err
		}}.run()
		if err != nil {
			return err
		}
	}
	return nil
}

// read returns all initiator groups, and the volume's target node; nil if it has none.
func (i iscsi) read(ctx context.Context, id string) ([]spdkrpc.IscsiInitiatorGroup, *spdkrpc.IscsiTargetNode, error) {
	groups, err := i.rpc.IscsiGetInitiatorGroups(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list initiator groups: %w", err)
	}
	nodes, err := i.rpc.IscsiGetTargetNodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list iSCSI targets: %w", err)
	}
	for k := range nodes {
		if nodes[k].Name == IQN(id) {
			return groups, &nodes[k], nil
		}
	}
	return groups, nil, nil
}
