package export

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// hostsInFlight is the maximum number of exports read concurrently.
const hostsInFlight = 32

// Hosts returns, for each volume, the NQNs or initiator names of the hosts that can use its export.
// It returns no hosts for an incomplete export, for example if the target has lost its
// configuration.
func (s *Service) Hosts(ctx context.Context, volumes []string) ([][]string, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.hosts(ctx, volumes)
	}
	return nvmf{s}.hosts(ctx, volumes)
}

func (n nvmf) hosts(ctx context.Context, volumes []string) ([][]string, error) {
	hosts := make([][]string, len(volumes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(hostsInFlight)
	for i, id := range volumes {
		g.Go(func() error {
			sub, err := n.subsystem(ctx, id)
			if errors.Is(err, errNotExported) {
				return nil
			}
			if err != nil {
				return err
			}
			if len(sub.Namespaces) == 1 && !sub.AllowAnyHost && len(n.missingListeners(sub)) == 0 {
				for _, h := range sub.Hosts {
					hosts[i] = append(hosts[i], h.NQN)
				}
			}
			return nil
		})
	}
	return hosts, g.Wait()
}

// hosts reads all target nodes with one call, because SPDK cannot return a single target node.
func (i iscsi) hosts(ctx context.Context, volumes []string) ([][]string, error) {
	hosts := make([][]string, len(volumes))
	if len(volumes) == 0 {
		return hosts, nil
	}
	now, err := i.read(ctx, volumes[0])
	if err != nil {
		return nil, err
	}
	portals, err := i.portalGroups(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]spdkrpc.ISCSITargetNode, len(now.nodes))
	for _, n := range now.nodes {
		nodes[n.Name] = n
	}
	for k, id := range volumes {
		node, ok := nodes[IQN(id)]
		if !ok || len(node.LUNs) == 0 {
			continue
		}
		for _, g := range now.groups {
			if i.mapsAll(node, portals, g.Tag) {
				hosts[k] = append(hosts[k], g.Initiators...)
			}
		}
	}
	return hosts, nil
}

// mapsAll reports whether the initiators in a group can log in to a target node at all portals.
func (i iscsi) mapsAll(node spdkrpc.ISCSITargetNode, portals []spdkrpc.ISCSIPortalGroup, ig int32) bool {
	return !slices.ContainsFunc(i.Listen, func(at Portal) bool {
		return !slices.Contains(node.PGIGMaps, spdkrpc.ISCSIPGIGMap{PGTag: portalGroup(portals, at), IGTag: ig})
	})
}

// checkNobodyConnected fails if any host is connected, except hosts for which except returns true.
func (n nvmf) checkNobodyConnected(ctx context.Context, id string, except func(hostNQN string) bool) error {
	controllers, err := n.rpc.NVMfSubsystemGetControllers(ctx, spdkrpc.NVMfSubsystemGetControllersParams{NQN: NQN(id)})
	if err != nil {
		return fmt.Errorf("list the hosts connected to %s: %w", NQN(id), err)
	}
	for _, c := range controllers {
		if !except(c.Hostnqn) {
			return fmt.Errorf("%w: host %s is connected: disconnect it first", ErrInUse, c.Hostnqn)
		}
	}
	return nil
}

// checkExportsOnly fails if a subsystem exports a bdev other than the volume.
func checkExportsOnly(sub *spdkrpc.NVMfSubsystem, id string) error {
	for _, ns := range sub.Namespaces {
		if ns.BdevName != id {
			return fmt.Errorf("%w: subsystem %s exports bdev %s: remove that namespace; subsystems with this name are reserved for the driver", ErrForeign, sub.NQN, ns.BdevName)
		}
	}
	return nil
}
