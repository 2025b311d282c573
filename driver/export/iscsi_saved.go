package export

import (
	"context"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A target that restarted without the disk of a volume lacks the volume's target node, but the
// saved configuration still creates the node at the next start. This file removes such target nodes
// from the saved configuration, as saved.go does for NVMe-oF subsystems.

// savedISCSI contains saved iSCSI objects that do not exist on the target, or that differ there.
type savedISCSI []spdkrpc.ProxyMissingExport

// saved waits until all changes that the target has executed so far would survive a restart, and
// returns the saved iSCSI objects that are not in effect on the target.
func (i iscsi) saved(ctx context.Context) (savedISCSI, error) {
	return i.awaitSaved(ctx, spdkrpc.SpdkgateConfigAwaitParams{Protocol: new(spdkrpc.SpdkgateConfigAwaitProtocolISCSI)})
}

// nodes returns all saved target nodes that the target lacks.
func (s savedISCSI) nodes() (list []spdkrpc.ProxyMissingExport) {
	for _, m := range s {
		if m.IQN != nil {
			list = append(list, m)
		}
	}
	return list
}

// node returns the missing target node with a name, or nil.
func (s savedISCSI) node(name string) *spdkrpc.ProxyMissingExport {
	for _, m := range s.nodes() {
		if *m.IQN == name {
			return &m
		}
	}
	return nil
}

// uses reports whether a missing target node may refer to the initiator group g.
func (s savedISCSI) uses(g spdkrpc.ISCSIInitiatorGroup) bool {
	return slices.ContainsFunc(s.nodes(), func(m spdkrpc.ProxyMissingExport) bool {
		return slices.ContainsFunc(g.Initiators, func(name string) bool { return slices.Contains(m.Initiators, name) })
	})
}

// markTag returns the tag of a host's fence mark if the target lacks the mark, or nil.
func (s savedISCSI) markTag(h Host) *int32 {
	for _, m := range s {
		if m.Tag != nil && slices.Equal(m.Initiators, []string{fenceMark(h).IQN}) {
			return m.Tag
		}
	}
	return nil
}

// checkMayAdmit fails if the saved configuration admits a host other than h to the volume, or if it
// contains a fence mark of h that the target lacks.
func (s savedISCSI) checkMayAdmit(i iscsi, id string, h Host) error {
	if s.markTag(h) != nil {
		return i.fencedError(h)
	}
	m := s.node(IQN(id))
	if m == nil {
		return nil
	}
	for _, name := range m.Initiators {
		if name != h.IQN && name != anyInitiator {
			return fmt.Errorf("%w: the saved configuration of target %s publishes the volume to initiator %s: unpublish it there first; "+
				"if it is not published there, delete iSCSI target %s through spdk-proxy, which fails but removes it from the saved configuration", ErrInUse, i.Service.Name, name, *m.IQN)
		}
	}
	return nil
}

// withdrawSaved removes the volume's target node from the saved configuration if the target lacks
// it and it admits h, or any host if h is nil. It returns the missing objects that remain.
func (i iscsi) withdrawSaved(ctx context.Context, id string, h *Host) (savedISCSI, error) {
	for range 3 {
		missing, err := i.saved(ctx)
		if err != nil {
			return nil, err
		}
		m := missing.node(IQN(id))
		if m == nil || h != nil && !slices.Contains(m.Initiators, h.IQN) && !slices.Contains(m.Initiators, anyInitiator) {
			return missing, nil
		}
		if h != nil && slices.ContainsFunc(m.Initiators, func(name string) bool { return name != h.IQN && name != anyInitiator }) {
			return nil, fmt.Errorf("%w: the saved configuration of target %s publishes the volume to initiators %v: delete iSCSI target %s, or bring it back and remove the initiator", ErrForeign, i.Service.Name, m.Initiators, *m.IQN)
		}
		if err := i.removeSaved(ctx, *m.IQN); err != nil {
			return nil, err
		}
	}
	return nil, i.stillSaved(IQN(id))
}

// stillSaved returns the error for a target node that the saved configuration still creates.
func (i iscsi) stillSaved(name string) error {
	return fmt.Errorf("%w: the saved configuration of target %s still exports %s: try again", ErrBusy, i.Service.Name, name)
}

// removeSaved removes a target node from the saved configuration. If the target has a different
// target node with this name, removeSaved changes nothing, because other hosts may be using that
// target node.
func (i iscsi) removeSaved(ctx context.Context, name string) error {
	nodes, err := i.rpc.ISCSIGetTargetNodes(ctx)
	if err != nil {
		return fmt.Errorf("list iSCSI targets: %w", err)
	}
	if slices.ContainsFunc(nodes, func(n spdkrpc.ISCSITargetNode) bool { return n.Name == name }) {
		return fmt.Errorf("%w: iSCSI target %s differs from the saved configuration of target %s, which would export it to other initiators after a restart: detach its volume everywhere, and try again", ErrBusy, name, i.Service.Name)
	}
	err = i.rpc.ISCSIDeleteTargetNode(ctx, spdkrpc.ISCSIDeleteTargetNodeParams{Name: name})
	if err != nil && !readback.Refused(err) {
		return fmt.Errorf("delete iSCSI target %s from the saved configuration: %w", name, err)
	}
	return nil
}

// fenceSaved removes from the saved configuration the missing target nodes that only h could use,
// and reports the missing target nodes that other initiators could use too. deleted lists the
// target nodes that the caller has deleted, or, with dryRun, would have deleted.
func (i iscsi) fenceSaved(ctx context.Context, h Host, deleted []string, dryRun bool) (all []Fencing, err error) {
	removed := map[string]bool{}
	for range 3 {
		missing, err := i.saved(ctx)
		if err != nil {
			return all, err
		}
		var others []Fencing
		last := ""
		for _, m := range missing.nodes() {
			host, open := slices.Contains(m.Initiators, h.IQN), slices.Contains(m.Initiators, anyInitiator)
			rest := slices.ContainsFunc(m.Initiators, func(name string) bool { return name != h.IQN })
			switch {
			case dryRun && slices.Contains(deleted, *m.IQN):
			case host && !rest:
				last = *m.IQN
				if !removed[last] {
					removed[last] = true
					all = append(all, Fencing{Export: last, Change: "remove the iSCSI target, which only initiator " + h.IQN + " could use, from the saved configuration"})
				}
				if dryRun {
					continue
				}
				if err := i.removeSaved(ctx, last); err != nil {
					return all, err
				}
			case host || open:
				others = append(others, Fencing{Export: *m.IQN, Problem: "it is missing on the target, and a restart would export it to this node and other initiators: delete the iSCSI target, or disconnect the node from the network"})
			}
		}
		if dryRun || last == "" {
			return append(all, others...), nil
		}
	}
	return all, i.stillSaved(all[len(all)-1].Export)
}

// unfenceSaved removes a host's fence mark from the saved configuration if the target lacks the
// mark.
func (i iscsi) unfenceSaved(ctx context.Context, h Host) error {
	for range 3 {
		missing, err := i.saved(ctx)
		if err != nil {
			return err
		}
		tag := missing.markTag(h)
		if tag == nil {
			return nil
		}
		groups, err := i.initiatorGroups(ctx)
		if err != nil {
			return err
		}
		if initiators(groups, *tag) != nil {
			return fmt.Errorf("%w: the saved mark of the fenced node has tag %d, which another initiator group on target %s uses: delete that group, and try again", ErrBusy, *tag, i.Service.Name)
		}
		err = i.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: *tag})
		if err != nil && !readback.Refused(err) {
			return fmt.Errorf("delete the mark of a fenced node from the saved configuration: %w", err)
		}
	}
	return fmt.Errorf("%w: the saved configuration of target %s still marks the node as fenced: try again", ErrBusy, i.Service.Name)
}
