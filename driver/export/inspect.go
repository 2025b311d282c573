package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Found describes an export with a name reserved for the driver.
type Found struct {
	Volume string   // UUID from the name
	Name   string   // NQN or IQN
	Hosts  []string // admitted NVMe host NQNs or iSCSI initiator names
	Open   bool     // admits every host
	// Complete reports whether hosts can use the volume through this export, which requires a
	// namespace or LUN, and at least one listener or portal group.
	Complete bool
	// NotListening contains the configured portals at which hosts cannot reach the export.
	NotListening []Portal
	Foreign      string // an exported bdev other than the volume (usually empty)
}

// A Group is an initiator group of the driver that no target node refers to.
type Group struct {
	Tag       int32
	Initiator string
	// Claim reports whether the group is a claim to create the portal group rather than a node's
	// group.
	Claim bool
}

// An Inspection lists the objects on a target that have names of the driver.
type Inspection struct {
	Exports []Found
	Unused  []Group // groups that no export needs
	Fenced  []FencedHost
}

// Inspect lists all exports with names of the driver, the unneeded initiator groups, and the fenced
// hosts. Unlike the other methods, Inspect lists all objects of the target.
func (s *Service) Inspect(ctx context.Context) (Inspection, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.inspect(ctx)
	}
	return nvmf{s}.inspect(ctx)
}

// volumeIn returns the UUID at the end of an export's name, or an empty string if there is none.
func volumeIn(name, prefix string) string {
	text, ok := strings.CutPrefix(name, prefix)
	id, err := uuid.Parse(text)
	if !ok || err != nil || id.String() != text {
		return ""
	}
	return text
}

func (n nvmf) inspect(ctx context.Context) (Inspection, error) {
	subs, err := n.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return Inspection{}, fmt.Errorf("target %s: list subsystems: %w", n.Name, err)
	}
	all := Inspection{Fenced: fencedIn(subs)}
	for _, sub := range subs {
		id := volumeIn(sub.NQN, NQN(""))
		if id == "" {
			continue
		}
		missing := n.missingListeners(&sub)
		f := Found{Volume: id, Name: sub.NQN, Open: sub.AllowAnyHost, Complete: len(sub.Namespaces) == 1 && len(missing) < len(n.Listen), NotListening: missing}
		for _, h := range sub.Hosts {
			f.Hosts = append(f.Hosts, h.NQN)
		}
		for _, ns := range sub.Namespaces {
			if ns.BdevName != id {
				f.Foreign = ns.BdevName
			}
		}
		all.Exports = append(all.Exports, f)
	}
	return all, nil
}

func (i iscsi) inspect(ctx context.Context) (Inspection, error) {
	now, err := i.read(ctx, "")
	if err != nil {
		return Inspection{}, fmt.Errorf("target %s: %w", i.Service.Name, err)
	}
	portals, err := i.portalGroups(ctx)
	if err != nil {
		return Inspection{}, fmt.Errorf("target %s: %w", i.Service.Name, err)
	}
	all := Inspection{Fenced: fencedBy(now.groups)}
	for _, node := range now.nodes {
		id := volumeIn(node.Name, IQN(""))
		if id == "" {
			continue
		}
		f := Found{Volume: id, Name: node.Name, Complete: len(node.LUNs) > 0 && len(node.PGIGMaps) > 0}
		for _, at := range i.Listen {
			if pg := portalGroup(portals, at); pg == 0 || !slices.ContainsFunc(node.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return m.PGTag == pg }) {
				f.NotListening = append(f.NotListening, at)
			}
		}
		for _, m := range node.PGIGMaps {
			for _, name := range initiators(now.groups, m.IGTag) {
				if name == anyInitiator {
					f.Open = true
				} else if !slices.Contains(f.Hosts, name) { // a host has one mapping for each portal
					f.Hosts = append(f.Hosts, name)
				}
			}
		}
		for _, l := range node.LUNs {
			if l.BdevName != id {
				f.Foreign = l.BdevName
			}
		}
		all.Exports = append(all.Exports, f)
	}
	for _, g := range now.groups {
		switch {
		case (g.Tag == claimTag || g.Tag == removalTag) && len(g.Initiators) == 1 && strings.HasPrefix(g.Initiators[0], claimName):
			all.Unused = append(all.Unused, Group{Tag: g.Tag, Initiator: g.Initiators[0], Claim: true})
		case i.ours(g) && !used(now.nodes, g):
			all.Unused = append(all.Unused, Group{Tag: g.Tag, Initiator: g.Initiators[0]})
		}
	}
	return all, nil
}

// hostPrefix is the prefix of the initiator names that the driver gives to nodes.
const hostPrefix = "iqn.2026-11.io.spdkgate:host:"

// ours reports whether the driver created this initiator group for a node.
func (i iscsi) ours(g spdkrpc.ISCSIInitiatorGroup) bool {
	return g.Tag >= leastTag && holds(g, g.Initiators...) && strings.HasPrefix(g.Initiators[0], hostPrefix)
}

// Connected returns the NVMe hosts, or the addresses of the iSCSI initiators, that are connected to
// a volume's export.
func (s *Service) Connected(ctx context.Context, id string) (hosts []string, err error) {
	if s.Transport == ISCSI {
		connections, err := s.rpc.ISCSIGetConnections(ctx)
		return connectedTo(connections, id), err
	}
	controllers, err := s.rpc.NVMfSubsystemGetControllers(ctx, spdkrpc.NVMfSubsystemGetControllersParams{NQN: NQN(id)})
	if err != nil {
		if there, failed := s.Exists(ctx, id); failed == nil && !there {
			return nil, nil
		}
	}
	for _, c := range controllers {
		hosts = append(hosts, c.Hostnqn)
	}
	return hosts, err
}

// RemoveUnusedGroup removes an initiator group that Inspect returned, unless the group is now in
// use.
func (s *Service) RemoveUnusedGroup(ctx context.Context, g Group) error {
	i := iscsi{s}
	now, err := i.read(ctx, "")
	if err != nil {
		return err
	}
	missing, err := i.saved(ctx)
	if err != nil {
		return err
	}
	return i.removeUnusedGroups(ctx, slices.DeleteFunc(now.groups, func(x spdkrpc.ISCSIInitiatorGroup) bool {
		return missing.uses(x) || x.Tag != g.Tag || !i.ours(x) || x.Initiators[0] != g.Initiator
	}), now.nodes)
}

// connectedTo returns the addresses of the initiators that are connected to a volume's export.
func connectedTo(connections []spdkrpc.ISCSIConnection, id string) (initiators []string) {
	for _, c := range connections {
		if c.TargetNodeName == id || c.TargetNodeName == IQN(id) {
			initiators = append(initiators, c.InitiatorAddr)
		}
	}
	return initiators
}

// ConnectedEach is like Connected, but for several volumes. Over iSCSI, ConnectedEach lists the
// connections only once for all volumes.
func (s *Service) ConnectedEach(ctx context.Context, ids []string) ([][]string, error) {
	hosts := make([][]string, len(ids))
	if s.Transport == ISCSI {
		connections, err := s.rpc.ISCSIGetConnections(ctx)
		if err != nil {
			return nil, fmt.Errorf("target %s: list connections: %w", s.Name, err)
		}
		for i, id := range ids {
			hosts[i] = connectedTo(connections, id)
		}
		return hosts, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(hostsInFlight)
	for i, id := range ids {
		g.Go(func() (err error) {
			hosts[i], err = s.Connected(ctx, id)
			return err
		})
	}
	return hosts, g.Wait()
}

// checkHoldsIO fails while a host without native multipath is connected.
func (n nvmf) checkHoldsIO(ctx context.Context, id string) error {
	var missing error // set by the read of the subsystem, which runs concurrently because most volumes are not exported during a snapshot
	var reading sync.WaitGroup
	reading.Go(func() { _, missing = n.subsystem(ctx, id) })
	hosts, err := n.rpc.NVMfSubsystemGetControllers(ctx, spdkrpc.NVMfSubsystemGetControllersParams{NQN: NQN(id)})
	reading.Wait()
	if err != nil {
		switch {
		case errors.Is(missing, errNotExported):
			return nil
		case missing == nil && (errors.Is(err, spdkrpc.InvalidParams) || errors.Is(err, spdkrpc.NoSuchDevice)):
			return fmt.Errorf("%w: %s was created during the call: try again: %w", ErrBusy, NQN(id), err)
		}
		return fmt.Errorf("list the hosts connected to %s: %w", NQN(id), err)
	}
	for _, h := range hosts {
		if !hostname.IsMultipath(h.Hostnqn) {
			return fmt.Errorf("%w: host %s is connected without native NVMe multipath, so its I/O would fail while SPDK changes the volume: detach the volume first; "+
				"or boot the node with nvme_core.multipath=Y, upgrade the driver there, and publish the volume again", ErrInUse, h.Hostnqn)
		}
	}
	return nil
}
