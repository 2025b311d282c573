package spdktest

import (
	"slices"
	"syscall"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// This file simulates external snapshots. An external snapshot is a bdev outside the lvstore that
// is the parent of volumes in the lvstore. The volumes refer to this bdev by UUID. While they
// exist, the bdev is read-only.

func init() {
	handle("bdev_lvol_clone_bdev", (*engine).cloneBdev)
	confirm("bdev_lvol_set_parent_bdev", (*engine).setLvolParentBdev)
}

func (e *engine) cloneBdev(p spdkrpc.BdevLvolCloneBdevParams) (string, error) {
	s, err := e.store(nil, &p.LvsName)
	if err != nil {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "lvs does not exist")
	}
	b, ok := e.bdevs.find(p.Bdev)
	if !ok {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "bdev does not exist")
	}
	if l, ok := b.driver.(*lvol); ok && l.store == s {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "bdev is an lvol in same lvs as clone; use bdev_lvol_clone instead")
	}
	if n := s.checkName(p.CloneName); n != 0 {
		return "", invalid(n)
	}
	if b.size()%s.ClusterSize != 0 {
		return "", invalid(syscall.EINVAL)
	}
	if !b.claimExternal() {
		return "", invalid(syscall.EPERM)
	}
	r := &lvolRecord{UUID: uuid.NewString(), Name: p.CloneName, Clusters: b.size() / s.ClusterSize, Thin: true, External: b.uuid}
	if err := e.dir.truncateData(s.storeRecord, r.UUID, b.size()); err != nil {
		return "", err
	}
	if err := e.dir.reparentData(s.storeRecord, r, e.dataOf(b)); err != nil {
		return "", err
	}
	return e.keepNew(s, r)
}

// claimExternal adds one share to the read-only claim on a bdev.
func (b *bdev) claimExternal() bool {
	if b.claim.by != "" && b.claim.kind != readManyWriteNone || slices.ContainsFunc(b.users, func(u *bdevUser) bool { return u.writes }) {
		return false
	}
	b.claim = claim{by: "lvol", kind: readManyWriteNone, shared: b.claim.shared + 1}
	return true
}

// releaseExternal releases a volume's share of the claim on its external snapshot.
func (e *engine) releaseExternal(l *lvol) {
	b, ok := e.bdevs.find(l.External)
	if l.External == "" || !ok || b.claim.kind != readManyWriteNone {
		return
	}
	if b.claim.shared--; b.claim.shared == 0 {
		b.claim = claim{}
	}
}

// unregister removes a bdev during a call. If the bdev is an external snapshot, the volumes on top
// of it never release it, so the call gets no response.
func (e *engine) unregister(b *bdev) error {
	e.bdevs.remove(b)
	silent := false
	for _, s := range e.stores {
		for _, l := range s.lvols {
			if l.External == b.uuid && l.bdev != nil {
				l.orphan, silent = true, true
			}
		}
	}
	if silent {
		return errSilent
	}
	return nil
}

// dataOf returns the file that contains a bdev's bytes, or "" if they are all zeros.
func (e *engine) dataOf(b *bdev) string {
	switch d := b.driver.(type) {
	case *aio:
		return d.path
	case *lvol:
		if e.dir != nil {
			return e.dir.dataOf(d.store.storeRecord, d.UUID)
		}
	}
	return ""
}

func (e *engine) setLvolParentBdev(p spdkrpc.BdevLvolSetParentBdevParams) error {
	l, err := e.lvol(p.LvolName)
	if err != nil {
		return err
	}
	b, ok := e.bdevs.find(p.ParentName)
	switch {
	case !ok:
		return invalid(syscall.ENODEV)
	case b == l.bdev, !l.Thin, b.size()%l.store.ClusterSize != 0:
		return invalid(syscall.EINVAL)
	case l.External == b.uuid:
		return invalid(syscall.EEXIST)
	case !b.claimExternal():
		return invalid(syscall.EPERM)
	}
	if err := e.dir.reparentData(l.store.storeRecord, l.lvolRecord, e.dataOf(b)); err != nil {
		return err
	}
	e.releaseExternal(l)
	l.Parent, l.External = "", b.uuid
	return e.dir.saveLvol(l.store.storeRecord, l.lvolRecord)
}

// wakeDegraded creates the bdevs of the volumes that were waiting for external snapshot b, and of
// the volumes on top of them.
func (e *engine) wakeDegraded(b *bdev) {
	for _, s := range e.stores {
		if slices.ContainsFunc(s.lvols, func(l *lvol) bool { return l.bdev == nil && l.External == b.uuid }) {
			for _, l := range s.lvols {
				e.load(l)
			}
		}
	}
}
