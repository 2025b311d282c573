package storage

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// hosts is the UUID namespace in which the driver hashes the names of nodes, in all releases.
var hosts = uuid.MustParse("6a0c2f1e-7d55-5b0e-9c43-0c1b8d2f7a91")

func hostID(node string) string { return uuid.NewSHA1(hosts, []byte(node)).String() }

// Host returns the NQN under which targets know a node.
func Host(node string) string { return "nqn.2014-08.org.nvmexpress:uuid:" + hostID(node) }

// LoopLabel returns the beginning of the labels of a node's loop devices on volumes.
func LoopLabel(node string) string { return "spdkgate:" + hostID(node)[:8] + ":" }

// Admitted returns which of some nodes each export of a volume admits, by NQN.
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

// Authenticates reports whether the target requires a key of a node, with which each export of a
// volume that admits it authenticates.
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
