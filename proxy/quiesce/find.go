package quiesce

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A volume is a logical volume that an operation affects. The embedded Snapshot describes the
// request.
type volume struct {
	Snapshot
	uuid    string   // name of the volume's bdev
	names   []string // UUID and aliases of the bdev
	store   string   // name of the lvstore
	storeID string   // UUID of the lvstore
	claimed bool     // whether a user of the bdev is writing, or may write, to it
	lvol    string   // the volume's name within the lvstore
	parent  string   // alias of the snapshot below; "" if none is in the lvstore
	clones  []string // names within the lvstore
	size    uint64   // in bytes

	allocated *uint64 // in clusters; nil if this release does not report the number

	// bdev outside the lvstore that provides the volume's unallocated clusters; "" if there is none
	external string
	snapshot bool // the volume is a snapshot, so nothing writes to it
}

// alias returns the bdev alias of the requested snapshot.
func (v *volume) alias() string { return v.store + "/" + v.Name }

// findVolumes finds the volumes to be snapshotted.
func findVolumes(ctx context.Context, rpc *spdkrpc.Client, wanted []Snapshot) ([]*volume, error) {
	volumes := make([]*volume, len(wanted))
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range wanted {
		g.Go(func() (err error) {
			volumes[i], err = findVolume(ctx, rpc, s)
			return err
		})
	}
	return volumes, g.Wait()
}

func findVolume(ctx context.Context, rpc *spdkrpc.Client, s Snapshot) (*volume, error) {
	list, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &s.Volume})
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].DriverSpecific.Lvol == nil {
		return nil, &spdkrpc.Error{Method: snapshotMethod, Kind: spdkrpc.NoSuchDevice, Code: codeNoDevice, Message: "No such device", Err: errNoVolume}
	}
	b := list[0]
	v := &volume{Snapshot: s, uuid: b.Name, names: append([]string{b.Name}, b.Aliases...), size: sizeOf(b)}
	v.claimed = isWritten(b)
	for _, alias := range b.Aliases {
		if store, name, ok := strings.Cut(alias, "/"); ok {
			v.store, v.lvol = store, name
		}
	}
	l := b.DriverSpecific.Lvol
	if l.LvolStoreUUID != nil {
		v.storeID = *l.LvolStoreUUID
	}
	v.allocated = l.NumAllocatedClusters
	v.clones, v.snapshot = l.Clones, l.Snapshot != nil && *l.Snapshot
	if l.BaseSnapshot != nil {
		v.parent = v.store + "/" + *l.BaseSnapshot
	}
	if l.ExternalSnapshotName != nil {
		v.external = *l.ExternalSnapshotName
	}
	return v, nil
}

// isWritten reports whether the owner of a claim may be writing to the bdev. Releases without claim
// types have only claims that allow writes.
func isWritten(b spdkrpc.BdevInfo) bool {
	return b.Claimed && (b.ClaimType == nil || *b.ClaimType != "read_many_write_none")
}

func sizeOf(b spdkrpc.BdevInfo) uint64 { return b.NumBlocks * uint64(b.BlockSize) }

// checkNamesFree returns an ExistsError if the name of a snapshot is already in use.
func checkNamesFree(ctx context.Context, rpc *spdkrpc.Client, volumes []*volume) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, v := range volumes {
		g.Go(func() error {
			_, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new(v.alias())})
			switch {
			case err == nil:
				return &ExistsError{v.Name}
			case errors.Is(err, spdkrpc.NoSuchDevice):
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// checkOtherUses returns an InUseError if iSCSI, NBD, ublk or vhost uses one of the volumes,
// because these open a bdev without claiming it. If idle is set, iSCSI targets without a connected
// initiator do not count.
func checkOtherUses(ctx context.Context, rpc *spdkrpc.Client, volumes []*volume, idle bool) error {
	g, ctx := errgroup.WithContext(ctx)
	users := make([]map[string]string, 4)
	iscsiUses := iscsi
	if idle {
		iscsiUses = iscsiConnected
	}
	for i, list := range []func(context.Context, *spdkrpc.Client) (map[string]string, error){iscsiUses, nbd, ublk, vhost} {
		g.Go(func() (err error) {
			users[i], err = list(ctx, rpc)
			if errors.Is(err, spdkrpc.MethodNotFound) {
				return nil // this build of SPDK lacks the method
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, v := range volumes {
		for _, used := range users {
			for _, name := range v.names {
				if why, ok := used[name]; ok {
					return &InUseError{Volume: v.Volume, Why: why}
				}
			}
		}
	}
	return nil
}

// iscsi, iscsiConnected, nbd, ublk and vhost return a map from the names of bdevs in use to the
// reasons why these cannot be frozen.

func iscsi(ctx context.Context, rpc *spdkrpc.Client) (map[string]string, error) {
	used := map[string]string{}
	nodes, err := rpc.ISCSIGetTargetNodes(ctx)
	for _, n := range nodes {
		for _, l := range n.LUNs {
			used[l.BdevName] = "it is exported over iSCSI, whose hosts cannot hold back I/O. Detach it (delete the iSCSI target), then retry"
		}
	}
	return used, err
}

// iscsiConnected is like iscsi, but includes only targets with connected initiators.
func iscsiConnected(ctx context.Context, rpc *spdkrpc.Client) (map[string]string, error) {
	used := map[string]string{}
	nodes, err := rpc.ISCSIGetTargetNodes(ctx)
	if err != nil || len(nodes) == 0 {
		return used, err
	}
	connections, err := rpc.ISCSIGetConnections(ctx)
	for _, n := range nodes {
		// SPDK reports only the part of the name after the first colon, and no name before the
		// initiator has logged in.
		_, name, _ := strings.Cut(n.Name, ":")
		if !slices.ContainsFunc(connections, func(c spdkrpc.ISCSIConnection) bool { return c.TargetNodeName == name || c.TargetNodeName == "" }) {
			continue
		}
		for _, l := range n.LUNs {
			used[l.BdevName] = "an initiator is connected to it over iSCSI, and cannot hold back I/O. Detach it, then retry"
		}
	}
	return used, err
}

func nbd(ctx context.Context, rpc *spdkrpc.Client) (map[string]string, error) {
	used := map[string]string{}
	disks, err := rpc.NBDGetDisks(ctx, spdkrpc.NBDGetDisksParams{})
	for _, d := range disks {
		used[d.BdevName] = "it is attached to an NBD device. Detach it (nbd_stop_disk), then retry"
	}
	return used, err
}

func ublk(ctx context.Context, rpc *spdkrpc.Client) (map[string]string, error) {
	used := map[string]string{}
	disks, err := rpc.UblkGetDisks(ctx, spdkrpc.UblkGetDisksParams{})
	for _, d := range disks {
		used[d.BdevName] = "it is attached to a ublk device. Detach it (ublk_stop_disk), then retry"
	}
	return used, err
}

func vhost(ctx context.Context, rpc *spdkrpc.Client) (map[string]string, error) {
	const why = "it is attached to a virtual machine by vhost. Detach it, then retry"
	used := map[string]string{}
	list, err := rpc.VhostGetControllers(ctx, spdkrpc.VhostGetControllersParams{})
	for _, c := range list {
		if b := c.BackendSpecific.Block; b != nil && b.Bdev != nil {
			used[*b.Bdev] = why
		}
		for _, t := range c.BackendSpecific.SCSI {
			for _, l := range t.LUNs {
				used[l.BdevName] = why
			}
		}
	}
	return used, err
}

// exportingNQNs returns the NQNs of the subsystems that export claimed volumes. It searches the
// subsystems that the caller named first, and then all subsystems.
func exportingNQNs(ctx context.Context, rpc *spdkrpc.Client, volumes []*volume) (nqns []string, err error) {
	var all []spdkrpc.NVMfSubsystem
	for _, v := range volumes {
		if !v.claimed {
			continue
		}
		if v.NQN != "" {
			subs, err := rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &v.NQN})
			if err == nil && len(subs) == 1 && namespaceOf(subs[0], v.uuid) != nil {
				nqns = append(nqns, v.NQN)
				continue
			}
		}
		if all == nil {
			if all, err = rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{}); err != nil {
				return nil, err
			}
		}
		found := false
		for _, s := range all {
			if namespaceOf(s, v.uuid) != nil {
				nqns, found = append(nqns, s.NQN), true
			}
		}
		if !found {
			return nil, &InUseError{Volume: v.Volume, Why: "another bdev of the target is built on it, or claims it. Delete that bdev, then retry"}
		}
	}
	slices.Sort(nqns)
	return slices.Compact(nqns), nil
}

func namespaceOf(s spdkrpc.NVMfSubsystem, uuid string) *spdkrpc.NVMfNamespace {
	for _, ns := range s.Namespaces {
		if ns.BdevName == uuid {
			return &ns
		}
	}
	return nil
}

// connected reports whether a host is connected to a subsystem.
func connected(ctx context.Context, rpc *spdkrpc.Client, nqn string) (bool, error) {
	list, err := rpc.NVMfSubsystemGetControllers(ctx, spdkrpc.NVMfSubsystemGetControllersParams{NQN: nqn})
	return len(list) > 0, err
}

// withHosts returns those subsystems to which a host is connected.
func withHosts(ctx context.Context, rpc *spdkrpc.Client, nqns []string) ([]string, error) {
	hosts := make([]bool, len(nqns))
	g, ctx := errgroup.WithContext(ctx)
	for i, nqn := range nqns {
		g.Go(func() (err error) {
			hosts[i], err = connected(ctx, rpc, nqn)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, &BusyError{Why: "a subsystem is changing", Err: err}
	}
	var list []string
	for i, nqn := range nqns {
		if hosts[i] {
			list = append(list, nqn)
		}
	}
	return list, nil
}

// pathsTo returns the subsystems' paths that must be frozen, or an InUseError if they cannot be
// frozen.
func pathsTo(ctx context.Context, rpc *spdkrpc.Client, nqns []string, volumes []*volume) ([]paths, error) {
	each := make([][]paths, len(nqns))
	g, ctx := errgroup.WithContext(ctx)
	for i, nqn := range nqns {
		g.Go(func() (err error) {
			each[i], err = pathsIn(ctx, rpc, nqn, volumes)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(each...), nil
}

// checkAllCovered returns a BusyError if no path leads to a claimed volume.
func checkAllCovered(all []paths, volumes []*volume) error {
	for _, v := range volumes {
		if v.claimed && !slices.ContainsFunc(all, func(p paths) bool { return slices.Contains(p.bdevs, v.uuid) }) {
			return &BusyError{Why: "the export of volume " + v.Volume + " is changing"}
		}
	}
	return nil
}

func pathsIn(ctx context.Context, rpc *spdkrpc.Client, nqn string, volumes []*volume) (list []paths, err error) {
	subs, err := rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
	if err != nil {
		return nil, &BusyError{Why: "a subsystem is changing", Err: err}
	}
	listeners, err := rpc.NVMfSubsystemGetListeners(ctx, spdkrpc.NVMfSubsystemGetListenersParams{NQN: nqn})
	if err != nil || len(subs) != 1 {
		return nil, &BusyError{Why: "a subsystem is changing", Err: err}
	}
	for _, v := range volumes {
		ns := namespaceOf(subs[0], v.uuid)
		if ns == nil {
			continue
		}
		if ns.Anagrpid == nil {
			return nil, &InUseError{Volume: v.Volume, Why: "its subsystem was created without ANA reporting, so hosts cannot be told to hold back I/O. " +
				"Detach the volume, then retry; or publish it again in a subsystem with ana_reporting, for hosts with native NVMe multipath"}
		}
		i := slices.IndexFunc(list, func(p paths) bool { return p.Group == *ns.Anagrpid })
		if i < 0 {
			p := paths{NQN: nqn, Group: *ns.Anagrpid}
			for _, l := range listeners {
				state := stateOf(l, p.Group)
				if !slices.Contains([]string{optimized, nonOptimized, inaccessible}, state) || !slices.Contains(fabrics, l.Address.Trtype) {
					return nil, &InUseError{Volume: v.Volume, Why: "a listener of its subsystem has a transport or an ANA state that cannot be frozen. Detach the volume, then retry"}
				}
				p.Listeners = append(p.Listeners, path{l.Address, state})
			}
			i, list = len(list), append(list, p)
		}
		list[i].Namespaces = append(list[i].Namespaces, uint32(ns.NSID))
		list[i].bdevs = append(list[i].bdevs, v.uuid)
	}
	return list, nil
}

// fabrics lists the transports whose hosts are known to honor ANA states.
var fabrics = []string{"TCP", "RDMA", "FC"}
