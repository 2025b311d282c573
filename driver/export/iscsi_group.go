package export

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A groupUse prevents the removal of a node's initiator group while exports are about to refer to
// it. When SPDK removes an initiator group, it also removes the group from all target nodes, which
// would lock the node out. Exports to the same node run concurrently, and wait only while the group
// is being removed. A removal never waits.
type groupUse struct {
	mu       sync.Mutex // never held during an RPC
	exports  map[string]int
	removing map[string]chan struct{}
}

func newGroupUse() *groupUse {
	return &groupUse{exports: map[string]int{}, removing: map[string]chan struct{}{}}
}

// enter begins an export to an initiator. If the initiator's group is being removed, enter waits
// for the removal to end. Call leave at the end of the export.
func (u *groupUse) enter(ctx context.Context, initiator string) (leave func(), err error) {
	for {
		u.mu.Lock()
		removed := u.removing[initiator]
		if removed == nil {
			u.exports[initiator]++
			u.mu.Unlock()
			return func() { u.leave(initiator) }, nil
		}
		u.mu.Unlock()
		select {
		case <-removed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the initiator group of %s to be removed: %w", initiator, ctx.Err())
		}
	}
}

func (u *groupUse) leave(initiator string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.exports[initiator]--; u.exports[initiator] == 0 {
		delete(u.exports, initiator)
	}
}

// remove begins the removal of an initiator's group, unless an export or another removal is
// running. Call done at the end of the removal.
func (u *groupUse) remove(initiator string) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.exports[initiator] > 0 || u.removing[initiator] != nil {
		return nil, false
	}
	removed := make(chan struct{})
	u.removing[initiator] = removed
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.removing, initiator)
		close(removed)
	}, true
}

// ensureInitiatorGroup returns the tag of the initiator group that contains only the node's
// initiator name. It creates the group if necessary.
func (i iscsi) ensureInitiatorGroup(ctx context.Context, groups []spdkrpc.ISCSIInitiatorGroup, h Host) (int32, error) {
	if tag := initiatorGroup(groups, h); tag != 0 {
		return tag, nil
	}
	tag := freeTag(groups, h)
	err := readback.NewStep(fmt.Sprintf("create initiator group %d for %s", tag, h.IQN), func() error {
		return i.rpc.ISCSICreateInitiatorGroup(ctx, spdkrpc.ISCSICreateInitiatorGroupParams{
			Tag: tag, Initiators: []string{h.IQN}, Netmasks: []string{anyInitiator},
		})
	}, func() (bool, error) {
		now, err := i.rpc.ISCSIGetInitiatorGroups(ctx)
		return initiatorGroup(now, h) == tag, err
	}).Run()
	return tag, err
}

func initiatorGroup(groups []spdkrpc.ISCSIInitiatorGroup, h Host) int32 {
	for _, g := range groups {
		if holds(g, h.IQN) {
			return g.Tag
		}
	}
	return 0
}

// holds reports whether a group has the form that this package creates: the given initiators, at
// any address.
func holds(g spdkrpc.ISCSIInitiatorGroup, initiator ...string) bool {
	return len(initiator) == 1 && initiator[0] != anyInitiator && slices.Equal(g.Initiators, initiator) && slices.Equal(g.Netmasks, []string{anyInitiator})
}

// freeTag returns an unused tag. Repeated calls, including those of other controllers, choose the
// same tag for a node.
func freeTag(groups []spdkrpc.ISCSIInitiatorGroup, h Host) int32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(h.IQN))
	tag := leastTag + int32(sum.Sum32()%(1<<30))
	for slices.ContainsFunc(groups, func(g spdkrpc.ISCSIInitiatorGroup) bool { return g.Tag == tag }) {
		tag++
	}
	return tag
}

func initiators(groups []spdkrpc.ISCSIInitiatorGroup, tag int32) []string {
	for _, g := range groups {
		if g.Tag == tag {
			return g.Initiators
		}
	}
	return nil
}

// removeUnusedGroups removes the initiator groups that this package created and that no target node
// refers to.
func (i iscsi) removeUnusedGroups(ctx context.Context, groups []spdkrpc.ISCSIInitiatorGroup, nodes []spdkrpc.ISCSITargetNode) error {
	for _, g := range groups {
		if g.Tag < leastTag || !holds(g, g.Initiators...) || used(nodes, g) {
			continue
		}
		if err := i.removeGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func used(nodes []spdkrpc.ISCSITargetNode, g spdkrpc.ISCSIInitiatorGroup) bool {
	return slices.ContainsFunc(nodes, func(n spdkrpc.ISCSITargetNode) bool {
		return slices.ContainsFunc(n.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return m.IGTag == g.Tag })
	})
}

func (i iscsi) removeGroup(ctx context.Context, g spdkrpc.ISCSIInitiatorGroup) error {
	done, ok := i.groups.remove(g.Initiators[0])
	if !ok {
		return nil // an export to this node is about to use the group
	}
	defer done()
	nodes, err := i.rpc.ISCSIGetTargetNodes(ctx) // read again, because an export may have ended since
	if err != nil {
		return fmt.Errorf("list iSCSI targets: %w", err)
	}
	if used(nodes, g) {
		return nil
	}
	return readback.NewStep(fmt.Sprintf("delete initiator group %d", g.Tag), func() error {
		return i.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: g.Tag})
	}, func() (bool, error) {
		now, err := i.rpc.ISCSIGetInitiatorGroups(ctx)
		return err == nil && initiators(now, g.Tag) == nil, err
	}).Run()
}
