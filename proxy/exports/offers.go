package exports

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// offeredBy returns what exposes a volume by means other than NVMe-oF, such as an iSCSI target, a
// block device on the target's host, or a virtual machine's disk. Most of these do not claim the
// volume, so SPDK would export it a second time. unread lists the kinds of exports that the user is
// not permitted to read. It skips kinds that the target was built without. It makes no call that is
// known to fail, because each failed call would appear in the audit log.
func (t target) offeredBy(ctx context.Context, v volume, may permissions) (by string, unread []string, err error) {
	for _, kind := range []struct {
		name, method string
		find         func(context.Context, volume) (string, error)
	}{{"iSCSI", "iscsi_get_target_nodes", t.byISCSI}, {"nbd", "nbd_get_disks", t.byNBD}, {"ublk", "ublk_get_disks", t.byUblk}, {"vhost", "vhost_get_controllers", t.byVhost}} {
		if !may.has(kind.method) {
			continue
		}
		if !may.call(kind.method) {
			unread = append(unread, kind.name)
			continue
		}
		name, err := kind.find(ctx, v)
		switch {
		case spdkrpc.KindOf(err) == spdkrpc.Denied:
			unread = append(unread, kind.name)
		case err != nil && !unknowable(err):
			return "", nil, fmt.Errorf("find out what else exposes volume %s: %w", v.name, err)
		case name != "":
			return name, nil, nil
		}
	}
	return "", unread, nil
}

func (t target) byISCSI(ctx context.Context, v volume) (string, error) {
	nodes, err := t.rpc.ISCSIGetTargetNodes(ctx)
	for _, n := range nodes {
		for _, l := range n.LUNs {
			if v.is(l.BdevName) {
				return "the iSCSI target " + n.Name, nil
			}
		}
	}
	return "", err
}

func (t target) byNBD(ctx context.Context, v volume) (string, error) {
	disks, err := t.rpc.NBDGetDisks(ctx, spdkrpc.NBDGetDisksParams{})
	for _, d := range disks {
		if v.is(d.BdevName) {
			return "the block device " + d.NBDDevice + " of the storage server", nil
		}
	}
	return "", err
}

func (t target) byUblk(ctx context.Context, v volume) (string, error) {
	disks, err := t.rpc.UblkGetDisks(ctx, spdkrpc.UblkGetDisksParams{})
	for _, d := range disks {
		if v.is(d.BdevName) {
			return "the block device " + d.UblkDevice + " of the storage server", nil
		}
	}
	return "", err
}

func (t target) byVhost(ctx context.Context, v volume) (string, error) {
	controllers, err := t.rpc.VhostGetControllers(ctx, spdkrpc.VhostGetControllersParams{})
	for _, c := range controllers {
		if b := c.BackendSpecific.Block; b != nil && b.Bdev != nil && v.is(*b.Bdev) {
			return "the vhost controller " + c.Ctrlr, nil
		}
		for _, d := range c.BackendSpecific.SCSI {
			for _, l := range d.LUNs {
				if v.is(l.BdevName) {
					return "the vhost controller " + c.Ctrlr, nil
				}
			}
		}
	}
	return "", err
}
