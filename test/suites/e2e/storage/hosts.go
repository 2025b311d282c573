package storage

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// hosts is the UUID namespace that all releases of the driver use to hash node names.
var hosts = uuid.MustParse("6a0c2f1e-7d55-5b0e-9c43-0c1b8d2f7a91")

func hostID(node string) string { return uuid.NewSHA1(hosts, []byte(node)).String() }

// Host returns a node's NVMe host NQN.
func Host(node string) string { return "nqn.2014-08.org.nvmexpress:uuid:" + hostID(node) }

// LoopLabel returns the prefix of the labels on a node's loop devices for volumes.
func LoopLabel(node string) string { return "spdkgate:" + hostID(node)[:8] + ":" }

// Admitted returns which of the given nodes each exported subsystem admits, keyed by subsystem NQN.
func (s *Server) Admitted(ctx context.Context, nodes ...string) (map[string][]string, error) {
	subsystems, err := s.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return nil, err
	}
	admitted := map[string][]string{}
	for _, sub := range subsystems {
		if len(sub.Namespaces) == 0 {
			continue
		}
		admitted[sub.NQN] = nil
		for _, n := range nodes {
			if slices.ContainsFunc(sub.Hosts, func(h spdkrpc.NVMfSubsystemHost) bool { return h.NQN == Host(n) }) {
				admitted[sub.NQN] = append(admitted[sub.NQN], n)
			}
		}
	}
	return admitted, nil
}

// Authenticates reports whether at least one export admits a node, and every such export requires
// the node's key.
func (s *Server) Authenticates(ctx context.Context, node string) (bool, error) {
	subsystems, err := s.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	admitted, all := 0, true
	for _, sub := range subsystems {
		for _, h := range sub.Hosts {
			if h.NQN == Host(node) {
				admitted++
				all = all && h.DHCHAPKey != nil
			}
		}
	}
	return admitted > 0 && all, err
}
