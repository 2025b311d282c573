package spdktest

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// This file simulates snapshots and clones. A snapshot takes over the clusters of its volume, and
// the volume becomes a clone of the snapshot. The file of each volume contains all of the volume's
// bytes, so only the list of allocated clusters depends on the chain.

func init() {
	handle("bdev_lvol_snapshot", (*engine).snapshotLvol)
	handle("bdev_lvol_clone", (*engine).cloneLvol)
	confirm("bdev_lvol_inflate", func(e *engine, p spdkrpc.BdevLvolInflateParams) error { return e.inflate(p.Name, true) })
	confirm("bdev_lvol_decouple_parent", func(e *engine, p spdkrpc.BdevLvolDecoupleParentParams) error { return e.inflate(p.Name, false) })
	confirm("bdev_lvol_set_parent", (*engine).setLvolParent)
}

func (l *lvol) parent() *lvol {
	if l.Parent == "" {
		return nil
	}
	all := slices.Concat(l.store.lvols, l.store.lost)
	return all[slices.IndexFunc(all, func(o *lvol) bool { return o.UUID == l.Parent })]
}

func (l *lvol) clones() (found []*lvol) {
	if !l.Snapshot {
		return nil
	}
	for _, o := range l.store.lvols {
		if o.Parent == l.UUID {
			found = append(found, o)
		}
	}
	return found
}

// takeOver gives a clone its snapshot's clusters and place in the chain.
func (l *lvol) takeOver(snapshot *lvol) {
	l.Allocated = max(l.Allocated, min(snapshot.Allocated, l.Clusters))
	l.takeOverOwn(snapshot)
	l.Parent, l.External = snapshot.Parent, snapshot.External
	snapshot.External = ""
}

func (e *engine) snapshotLvol(p spdkrpc.BdevLvolSnapshotParams) (string, error) {
	l, err := e.lvol(p.LvolName)
	if err != nil {
		return "", err
	}
	switch n := l.store.checkName(p.SnapshotName); {
	case n != 0:
		return "", invalid(n)
	case l.ReadOnly:
		return "", invalid(syscall.EINVAL)
	case l.busy:
		return "", invalid(syscall.EBUSY)
	}
	r := &lvolRecord{UUID: uuid.NewString(), Name: p.SnapshotName, ReadOnly: true, Snapshot: true, Written: l.Written, superblock: l.superblock}
	if err := e.copyLvol(l, r); err != nil {
		return "", err
	}
	r.Clusters, r.Allocated, r.Thin = l.Clusters, l.Allocated, l.Thin
	r.Parent, r.External = l.Parent, l.External
	if err := e.own(l.store.storeRecord, r); err != nil {
		return "", err
	}
	l.Parent, l.External, l.Allocated, l.Thin = r.UUID, "", 0, true
	id, err := e.keepNew(l.store, r)
	if err != nil {
		return "", err
	}
	return id, errors.Join(e.dir.saveLvol(l.store.storeRecord, l.lvolRecord), e.writeMetadata(l.store.storeRecord))
}

func (e *engine) cloneLvol(p spdkrpc.BdevLvolCloneParams) (string, error) {
	l, err := e.lvol(p.SnapshotName)
	if err != nil {
		return "", err
	}
	switch n := l.store.checkName(p.CloneName); {
	case n != 0:
		return "", invalid(n) // up to v26.01, SPDK also returns this if the name is missing
	case !l.ReadOnly:
		return "", invalid(syscall.EINVAL)
	case l.busy:
		return "", invalid(syscall.EBUSY)
	}
	r := &lvolRecord{UUID: uuid.NewString(), Name: p.CloneName, Clusters: l.Clusters, Thin: true, Parent: l.UUID, Written: l.Written, superblock: l.superblock}
	if err := e.copyLvol(l, r); err != nil {
		return "", err
	}
	if !l.Snapshot {
		l.Snapshot = true
		if err := e.dir.saveLvol(l.store.storeRecord, l.lvolRecord); err != nil {
			return "", err
		}
	}
	return e.keepNew(l.store, r)
}

// copyLvol copies l's data to a new volume while other calls continue to run. Until the copy is
// complete, the new name is reserved and l is busy.
func (e *engine) copyLvol(l *lvol, r *lvolRecord) error {
	if e.dir == nil && e.target.opts.Work == 0 {
		return nil
	}
	s, size := l.store, l.Clusters*l.store.ClusterSize
	l.busy = true
	s.pending = append(s.pending, r.Name)
	err := e.unlocked(func() error {
		time.Sleep(e.target.opts.Work)
		if e.dir == nil {
			return nil
		}
		return e.dir.copyData(s.storeRecord, e.dir.dataOf(s.storeRecord, l.UUID), r.UUID, size)
	})
	l.busy = false
	s.pending = slices.DeleteFunc(s.pending, func(name string) bool { return name == r.Name })
	if err != nil && e.dir == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(os.Remove(e.dir.dataOf(s.storeRecord, r.UUID))))
	}
	return nil
}

// inflate allocates the clusters that a volume lacks: all of them, or only those that its parent
// owns.
func (e *engine) inflate(name string, all bool) error {
	l, err := e.lvol(name)
	if err != nil {
		return err
	}
	parent := l.parent()
	switch {
	case l.busy:
		return invalid(syscall.EBUSY)
	case !all && parent == nil && l.External == "":
		return invalid(syscall.EINVAL)
	case !l.Thin:
		return nil
	}
	all = all || l.External != ""
	wanted := l.Clusters
	if !all {
		wanted = max(l.Allocated, min(parent.Allocated, l.Clusters))
	}
	if wanted-l.Allocated > l.store.free() {
		return invalid(syscall.ENOSPC)
	}
	// If SPDK inflates two volumes of an lvstore concurrently, it skips some of their clusters.
	if l.store.inflating {
		wanted = l.Allocated
	} else {
		l.store.inflating = true
		defer func() { l.store.inflating = false }()
	}
	return e.work([]*lvol{l}, func() error { return e.inflated(l, all, wanted) })
}

func (e *engine) inflated(l *lvol, all bool, wanted uint64) error {
	parent := l.parent()
	l.Allocated = wanted
	if all {
		e.releaseExternal(l)
		l.Thin, l.Parent, l.External = false, "", ""
	} else if parent != nil {
		l.Parent = parent.Parent // the volume does not inherit its parent's external parent
	}
	return e.dir.saveLvol(l.store.storeRecord, l.lvolRecord)
}

func (e *engine) setLvolParent(p spdkrpc.BdevLvolSetParentParams) error {
	l, err := e.lvol(p.LvolName)
	if err != nil {
		return err
	}
	snapshot, err := e.lvol(p.ParentName)
	if err != nil {
		return err
	}
	switch {
	case l.Parent == snapshot.UUID:
		return invalid(syscall.EEXIST)
	case l.store != snapshot.store, !snapshot.Snapshot, !l.Thin, l.Clusters != snapshot.Clusters, l == snapshot:
		return invalid(syscall.EINVAL)
	case l.busy, snapshot.busy:
		return invalid(syscall.EBUSY)
	}
	if err := e.dir.reparentData(l.store.storeRecord, l.lvolRecord, e.dataOf(snapshot.bdev)); err != nil {
		return err
	}
	e.releaseExternal(l)
	l.Parent, l.External = snapshot.UUID, ""
	return e.dir.saveLvol(l.store.storeRecord, l.lvolRecord)
}
