package export

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An iscsiState contains a target's initiator groups and target nodes.
type iscsiState struct {
	groups []spdkrpc.ISCSIInitiatorGroup
	nodes  []spdkrpc.ISCSITargetNode
	node   *spdkrpc.ISCSITargetNode // the volume's target node; nil if it has none
}

// others returns the target nodes of other volumes.
func (s iscsiState) others(id string) []spdkrpc.ISCSITargetNode {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(n spdkrpc.ISCSITargetNode) bool { return n.Name == IQN(id) })
}

// read reads the target's exports. SPDK cannot return a single target node.
func (i iscsi) read(ctx context.Context, id string) (now iscsiState, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		now.groups, err = i.initiatorGroups(gctx)
		return err
	})
	g.Go(func() (err error) {
		if now.nodes, err = i.rpc.ISCSIGetTargetNodes(gctx); err != nil {
			return fmt.Errorf("list iSCSI targets: %w", err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return iscsiState{}, err
	}
	if k := slices.IndexFunc(now.nodes, func(n spdkrpc.ISCSITargetNode) bool { return n.Name == IQN(id) }); k >= 0 {
		now.node = &now.nodes[k]
	}
	return now, nil
}

func (i iscsi) initiatorGroups(ctx context.Context) ([]spdkrpc.ISCSIInitiatorGroup, error) {
	groups, err := i.rpc.ISCSIGetInitiatorGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list initiator groups: %w", err)
	}
	return groups, nil
}
