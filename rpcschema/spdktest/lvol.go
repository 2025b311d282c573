package spdktest

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An lvol is a logical volume in an lvstore that the target has loaded.
type lvol struct {
	*lvolRecord
	store *lvstore
	bdev  *bdev  // nil while the volume is degraded: an external snapshot below it is missing
	alias string // LVSTORE/NAME; the new name after a rename that failed halfway
	busy  bool   // an operation on its blob is in progress
	going bool   // the volume is being deleted
	// frozen means that the volume reports itself as read-only. If a volume has been made
	// read-only, it reports this only after it has been reloaded.
	frozen bool
	orphan bool // the volume's external snapshot was removed while the volume was loaded
}

func (l *lvol) describe(e *engine, _ *bdev, info *spdkrpc.BdevInfo) {
	t := &info.SupportedIOTypes
	t.Write, t.Unmap, t.WriteZeroes = !l.frozen, !l.frozen, !l.frozen
	t.SeekHole, t.SeekData = new(true), new(true)
	info.NUMAID = l.store.base.numaID()
	if external, ok := e.bdevs.find(l.External); l.store.base.hasDomains() || ok && external.hasDomains() {
		info.MemoryDomains = e.memoryDomains()
	}
	// The fields are copied because the engine continues while the response is written.
	d := &spdkrpc.BdevDriverLvol{
		LvolStoreUUID: new(l.store.UUID), BaseBdev: new(l.store.base.name), ThinProvision: new(l.Thin), NumAllocatedClusters: new(l.Allocated),
		Snapshot: new(l.Snapshot), Clone: new(l.Parent != ""), EsnapClone: new(l.External != ""),
	}
	if parent := l.parent(); parent != nil {
		d.BaseSnapshot = new(parent.Name)
	}
	for _, clone := range l.clones() {
		d.Clones = append(d.Clones, clone.Name)
	}
	if l.External != "" {
		d.ExternalSnapshotName = new(l.External)
	}
	info.DriverSpecific.Lvol = d
}

func init() {
	handle("bdev_lvol_create", (*engine).createLvol)
	confirm("bdev_lvol_resize", (*engine).resizeLvol)
	confirm("bdev_lvol_rename", (*engine).renameLvol)
	confirm("bdev_lvol_set_read_only", (*engine).setLvolReadOnly)
	confirm("bdev_lvol_delete", (*engine).deleteLvol)
	handlers["bdev_lvol_get_lvols"] = func(e *engine, params map[string]any) (any, error) {
		var p spdkrpc.BdevLvolGetLvolsParams
		if err := fill(params, &p); err != nil {
			return nil, err
		}
		return e.do(func() (any, error) { return e.getLvols(params != nil, p) })
	}
}

// A sizeParam is the older size parameter, in bytes, which size_in_mib has replaced.
type sizeParam struct {
	Size uint64 `json:"size"`
}

// bytes returns the requested size. As in SPDK, it may overflow.
func (s sizeParam) bytes(mib uint64) (uint64, error) {
	if s.Size > 0 && mib > 0 {
		return 0, jsonrpc.Errorf(jsonrpc.CodeInternalError, "size is deprecated. Specify only size_in_mib instead.")
	}
	if mib > 0 {
		return mib << 20, nil
	}
	return s.Size, nil
}

type createLvolParams struct {
	spdkrpc.BdevLvolCreateParams
	sizeParam
}

func (e *engine) createLvol(p createLvolParams) (string, error) {
	size, err := p.bytes(p.SizeInMiB)
	if err != nil {
		return "", err
	}
	s, err := e.store(p.UUID, p.LvsName)
	if err != nil {
		return "", err
	}
	if !validClearMethod(p.ClearMethod) {
		return "", errno(syscall.EINVAL)
	}
	if n := s.checkName(p.LvolName); n != 0 {
		return "", errno(n)
	}
	r := &lvolRecord{Name: p.LvolName, Clusters: divideUp(size, s.ClusterSize), Thin: value(p.ThinProvision)}
	if !r.Thin {
		r.Allocated = r.Clusters
		if r.Allocated > s.free() {
			return "", invalid(syscall.ENOSPC)
		}
	}
	r.UUID = uuid.NewString()
	if err := e.dir.truncateData(s.storeRecord, r.UUID, r.Clusters*s.ClusterSize); err != nil {
		return "", err
	}
	return e.keepNew(s, r)
}

// keepNew writes a new volume to the medium and loads it. The volume's data must be complete.
func (e *engine) keepNew(s *lvstore, r *lvolRecord) (string, error) {
	r.Order = s.nextOrder
	s.nextOrder++
	s.storeRecord.lvols[r.UUID] = r
	if err := e.dir.saveLvol(s.storeRecord, r); err != nil {
		return "", err
	}
	s.base.tally(s.user, spdkrpc.BdevIOTypeWrite, 10*time.Microsecond) // SPDK writes the metadata
	return e.addLvol(s, r).UUID, nil
}

// checkName implements SPDK's lvs_verify_lvol_name.
func (s *lvstore) checkName(name string) syscall.Errno {
	if name == "" || len(name) > maxNameLength {
		return syscall.EINVAL
	}
	if slices.ContainsFunc(s.lvols, func(l *lvol) bool { return l.Name == name }) || slices.Contains(s.pending, name) {
		return syscall.EEXIST
	}
	return 0
}

// addLvol loads a volume.
func (e *engine) addLvol(s *lvstore, r *lvolRecord) *lvol {
	l := &lvol{lvolRecord: r, store: s}
	s.lvols = append(s.lvols, l)
	e.register(l)
	return l
}

// register creates a volume's bdev and its alias.
func (e *engine) register(l *lvol) {
	s := l.store
	l.frozen = l.ReadOnly
	l.bdev = &bdev{
		name: l.UUID, uuid: l.UUID, product: "Logical Volume", blockSize: uint32(s.BlockSize), blocks: l.Clusters * s.ClusterSize / s.BlockSize,
		driver: l,
	}
	// The UUID can already be in use only if a host has written the lvstore.
	if e.bdevs.add(l.bdev) != nil {
		l.bdev = nil
		return
	}
	e.setAlias(l, l.Name)
	e.examine(l.bdev)
}

// setAlias replaces the alias of a volume's bdev with LVSTORE/NAME.
func (e *engine) setAlias(l *lvol, name string) bool {
	alias := l.store.Name + "/" + name
	if !e.bdevs.addAlias(l.bdev, alias) {
		return false
	}
	if l.alias != "" {
		e.bdevs.dropAlias(l.bdev, l.alias)
	}
	l.alias = alias
	return true
}

// lvol returns the volume with the given bdev name, alias or UUID.
func (e *engine) lvol(name string) (*lvol, error) {
	_, l, err := findOfKind[*lvol](e, name)
	return l, err
}

// lvolOrDegraded is like lvol, but also finds volumes without a bdev, by UUID or as LVSTORE/NAME.
func (e *engine) lvolOrDegraded(name string) (*lvol, error) {
	if l, err := e.lvol(name); err == nil {
		return l, nil
	}
	for _, s := range e.stores {
		for _, l := range s.lvols {
			if l.UUID == name || s.Name+"/"+l.Name == name {
				return l, nil
			}
		}
	}
	return nil, errno(syscall.ENODEV)
}

func (e *engine) getLvols(given bool, p spdkrpc.BdevLvolGetLvolsParams) ([]spdkrpc.LvolInfo, error) {
	stores := e.stores
	if given {
		s, err := e.store(p.LvsUUID, p.LvsName)
		if err != nil {
			return nil, err
		}
		stores = []*lvstore{s}
	}
	list := []spdkrpc.LvolInfo{}
	for _, s := range stores {
		for _, l := range s.lvols {
			if l.going && e.before("v24.09") {
				return nil, errCrash // the volume no longer has a bdev
			}
			if l.going {
				continue
			}
			list = append(list, spdkrpc.LvolInfo{
				Alias: s.Name + "/" + l.Name, UUID: l.UUID, Name: l.Name, IsThinProvisioned: l.Thin, IsSnapshot: l.Snapshot,
				IsClone: l.Parent != "", IsEsnapClone: l.External != "", IsDegraded: l.bdev == nil, NumAllocatedClusters: new(l.Allocated),
				Lvs: spdkrpc.LvolStoreRef{Name: s.Name, UUID: s.UUID},
			})
		}
	}
	return list, nil
}

type resizeLvolParams struct {
	spdkrpc.BdevLvolResizeParams
	sizeParam
}

func (e *engine) resizeLvol(p resizeLvolParams) error {
	size, err := p.bytes(p.SizeInMiB)
	if err != nil {
		return err
	}
	l, err := e.lvol(p.Name)
	if err != nil {
		return err
	}
	s, clusters := l.store, divideUp(size, l.store.ClusterSize)
	switch {
	case clusters == l.Clusters:
	case l.ReadOnly:
		return invalid(syscall.EPERM)
	case l.busy:
		return invalid(syscall.EBUSY)
	case !l.Thin && clusters > l.Clusters && clusters-l.Clusters > s.free():
		return invalid(syscall.ENOSPC)
	}
	if clusters != l.Clusters {
		if err := e.work([]*lvol{l}, func() error { return nil }); err != nil {
			return err
		}
	}
	l.Clusters = clusters
	l.Allocated = min(l.Allocated, clusters)
	if !l.Thin {
		l.Allocated = clusters
	}
	if err := e.dir.truncateData(s.storeRecord, l.UUID, clusters*s.ClusterSize); err != nil {
		return err
	}
	if err := e.dir.saveLvol(s.storeRecord, l.lvolRecord); err != nil {
		return err
	}
	if err := e.resize(l.bdev, clusters*s.ClusterSize/s.BlockSize); err != nil {
		return invalid(syscall.EBUSY) // the volume has shrunk, but its bdev has not shrunk
	}
	return nil
}

func (e *engine) renameLvol(p spdkrpc.BdevLvolRenameParams) error {
	l, err := e.lvol(p.OldName)
	if err != nil {
		return err
	}
	if !e.setAlias(l, p.NewName) {
		return invalid(syscall.EEXIST)
	}
	switch name := truncated(p.NewName); {
	case name == l.Name:
		return nil
	case slices.ContainsFunc(l.store.lvols, func(o *lvol) bool { return o.Name == name }):
		return invalid(syscall.EEXIST)
	case l.ReadOnly:
		return invalid(syscall.EPERM)
	default:
		l.Name = name
	}
	return e.dir.saveLvol(l.store.storeRecord, l.lvolRecord)
}

func (e *engine) setLvolReadOnly(p spdkrpc.BdevLvolSetReadOnlyParams) error {
	l, err := e.lvol(p.Name)
	if err != nil {
		return err
	}
	if !l.ReadOnly {
		if err := e.own(l.store.storeRecord, l.lvolRecord); err != nil {
			return err
		}
	}
	l.ReadOnly = true
	l.frozen = l.frozen || e.before("v24.05")
	return errors.Join(e.dir.saveLvol(l.store.storeRecord, l.lvolRecord), e.writeMetadata(l.store.storeRecord))
}

// deleteLvol deletes a volume and removes its bdev, even if the bdev is in use. If the volume is a
// snapshot, its only clone takes over the clusters. If another operation on the blob, or on the
// clone's blob, is in progress, SPDK reports an error only after it has removed the volume from its
// lists. The clusters stay allocated, and the volume reappears when the target is restarted.
func (e *engine) deleteLvol(p spdkrpc.BdevLvolDeleteParams) error {
	l, err := e.lvolOrDegraded(p.Name)
	if err != nil {
		return err
	}
	if l.orphan {
		return errCrash
	}
	if l.going {
		return internal(syscall.EINVAL)
	}
	clones := l.clones()
	if len(clones) > 1 {
		return internal(syscall.EPERM)
	}
	l.going = true
	if l.bdev != nil {
		e.bdevs.remove(l.bdev)
	}
	busy := l.busy || len(clones) == 1 && clones[0].busy || l.parentGoes()
	if !busy {
		err = e.work(append(clones, l), func() error { return e.removeLvol(l, clones) })
	}
	e.dropLvol(l, busy)
	if busy {
		return internal(syscall.EBUSY)
	}
	return err
}

// parentGoes reports whether a volume's parent, which has no other clone, is being deleted.
func (l *lvol) parentGoes() bool {
	parent := l.parent()
	return parent != nil && parent.going
}

// removeLvol removes a volume from the medium.
func (e *engine) removeLvol(l *lvol, clones []*lvol) error {
	if len(clones) == 1 {
		clones[0].takeOver(l)
		if err := e.dir.saveLvol(l.store.storeRecord, clones[0].lvolRecord); err != nil {
			return err
		}
	}
	e.releaseExternal(l)
	delete(l.store.storeRecord.lvols, l.UUID)
	return errors.Join(e.dir.removeLvol(l.store.storeRecord, l.lvolRecord), e.writeMetadata(l.store.storeRecord))
}

// dropLvol removes a volume from the lists. lost means that it stays on the medium.
func (e *engine) dropLvol(l *lvol, lost bool) {
	l.store.lvols = slices.DeleteFunc(l.store.lvols, func(o *lvol) bool { return o == l })
	if lost {
		l.store.lost = append(l.store.lost, l)
	}
}

// work waits for as long as SPDK needs for an operation on blobs, and then calls the function do.
// Until work returns, the volumes are busy, but other calls can run.
func (e *engine) work(on []*lvol, do func() error) error {
	if e.target.opts.Work > 0 {
		for _, l := range on {
			l.busy = true
		}
		err := e.unlocked(func() error { time.Sleep(e.target.opts.Work); return nil })
		for _, l := range on {
			l.busy = false
		}
		if err != nil {
			return err
		}
	}
	return do()
}

// MakeBusy makes the volume with the given UUID busy, as if an operation on its blob never ended.
func (t *Target) MakeBusy(volume string) {
	t.inEngine(func(e *engine) {
		if l, err := e.lvolOrDegraded(volume); err == nil {
			l.busy = true
		}
	})
}
