package spdktest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An lvstore describes an lvstore that the target has loaded from a bdev.
type lvstore struct {
	*storeRecord
	inflating bool // one of its volumes is being inflated
	base      *bdev
	user      *bdevUser
	lvols     []*lvol // in order of creation
	lost      []*lvol // removed from lvols, but not from the medium
	// pending contains the names of volumes that are being created.
	pending []string
}

const (
	defaultClusterSize = 4 << 20
	maxNameLength      = 63 // in bytes, for lvstores and volumes
	metadataPage       = 4096
	maskHeader         = 5 // bytes before a bit mask in the metadata
)

func init() {
	handle("bdev_lvol_create_lvstore", (*engine).createLvstore)
	confirm("bdev_lvol_rename_lvstore", (*engine).renameLvstore)
	confirm("bdev_lvol_delete_lvstore", (*engine).deleteLvstore)
	confirm("bdev_lvol_grow_lvstore", (*engine).growLvstore)
	handlers["bdev_lvol_get_lvstores"] = func(e *engine, params map[string]any) (any, error) {
		var p spdkrpc.BdevLvolGetLvstoresParams
		if err := fill(params, &p); err != nil {
			return nil, err
		}
		return e.do(func() (any, error) { return e.getLvstores(params != nil, p) })
	}
}

var clearMethods = sync.OnceValue(func() []string { return valuesOf("bdev_lvol_create_lvstore", "clear_method") })

// validClearMethod reports whether SPDK accepts m. Letter case does not matter, and nil means the
// default.
func validClearMethod[M ~string](m *M) bool {
	return m == nil || slices.ContainsFunc(clearMethods(), func(known string) bool { return strings.EqualFold(known, string(*m)) })
}

func (e *engine) createLvstore(p spdkrpc.BdevLvolCreateLvstoreParams) (string, error) {
	page := uint64(value(p.MDPageSize))
	switch {
	case !validClearMethod(p.ClearMethod), p.LvsName == "", len(p.LvsName) > maxNameLength:
		return "", errno(syscall.EINVAL)
	case page != 0 && (page < metadataPage || page > 65536 || page&(page-1) != 0):
		return "", errno(syscall.EINVAL)
	}
	base, ok := e.bdevs.find(p.BdevName)
	if !ok {
		return "", errno(syscall.ENODEV)
	}
	if base.claim.by != "" || base.readOnly {
		return "", errno(syscall.EPERM)
	}
	r := &storeRecord{
		UUID: uuid.NewString(), Name: p.LvsName, ClusterSize: defaultClusterSize, BlockSize: uint64(base.blockSize), lvols: map[string]*lvolRecord{},
	}
	if size := value(p.ClusterSz); size != 0 {
		r.ClusterSize = uint64(size)
	}
	if whole := r.ClusterSize >= r.BlockSize && r.ClusterSize%r.BlockSize == 0; !whole && !e.before("v25.01") {
		return "", errno(syscall.EINVAL)
	} else if r.ClusterSize < r.BlockSize {
		return "", errno(syscall.EINVAL)
	}
	if slices.ContainsFunc(e.stores, func(s *lvstore) bool { return s.Name == p.LvsName }) {
		return "", errno(syscall.EEXIST)
	}
	ratio := uint64(value(p.NumMDPagesPerClusterRatio))
	if ratio == 0 {
		ratio = 100
	}
	if err := r.format(base.blocks, ratio, max(page, metadataPage)); err != nil {
		return "", err
	}
	if len(base.users) > 0 && slices.ContainsFunc(base.users, func(u *bdevUser) bool { return u.writes }) {
		return "", invalid(syscall.EPERM)
	}
	if a, ok := base.driver.(*aio); ok {
		r.Base = a.path
		if err := e.target.writeMark(a.path, r.UUID); err != nil {
			return "", invalid(syscall.EIO)
		}
	}
	if err := e.dir.saveStore(r); err != nil {
		return "", err
	}
	e.media.put(r)
	e.loadStore(base, r)
	return r.UUID, e.writeMetadata(r)
}

// format divides a medium into metadata and data as a blobstore does. The metadata consists of a
// super block, masks of used pages, clusters and blobs, and the pages themselves.
func (r *storeRecord) format(blocks, ratio, page uint64) error {
	clusters := blocks / (r.ClusterSize / r.BlockSize)
	pages := ratio * clusters / 100 & math.MaxUint32
	if pages == 0 || r.ClusterSize < page {
		return invalid(syscall.EINVAL)
	}
	mask := func(bits uint64) uint64 { return divideUp(maskHeader+divideUp(bits, 8), page) }
	clusterMask := max(mask(pages), mask(clusters))
	r.MetaClusters = divideUp(1+2*mask(pages)+clusterMask+pages, r.ClusterSize/page)
	if r.MetaClusters > clusters {
		return invalid(syscall.ENOMEM)
	}
	r.TotalClusters, r.MetaPages = clusters-r.MetaClusters, pages
	r.MaxClusters = (clusterMask*page - maskHeader) * 8
	return nil
}

// divideUp returns n/by rounded up. Like SPDK's spdk_divide_round_up, it can overflow.
func divideUp(n, by uint64) uint64 { return (n + by - 1) / by }

// loadStore loads an lvstore and its volumes.
func (e *engine) loadStore(base *bdev, r *storeRecord) {
	s := &lvstore{storeRecord: r, base: base}
	base.claim = claim{by: "lvol", kind: readManyWriteOne}
	s.user = &bdevUser{writes: true, gone: func() { e.unloadStore(s) }}
	base.openChannel(s.user)
	base.users = append(base.users, s.user)
	e.stores = append(e.stores, s)
	for _, l := range r.sorted() {
		s.lvols = append(s.lvols, &lvol{lvolRecord: l, store: s})
	}
	for _, l := range s.lvols {
		e.load(l)
	}
}

// load loads a volume from the medium. If the external snapshot of the volume or of one of its
// parents is missing, the volume is degraded and has no bdev.
func (e *engine) load(l *lvol) {
	if l.bdev != nil {
		return
	}
	if parent := l.parent(); parent != nil {
		if e.load(parent); parent.bdev == nil {
			return
		}
	}
	if b, ok := e.bdevs.find(l.External); l.External != "" && (!ok || !b.claimExternal()) {
		return
	}
	e.register(l)
}

// unloadStore unloads an lvstore with its volumes.
func (e *engine) unloadStore(s *lvstore) {
	for _, l := range slices.Clone(s.lvols) {
		if l.bdev != nil {
			e.bdevs.remove(l.bdev)
		}
	}
	e.stores = slices.DeleteFunc(e.stores, func(o *lvstore) bool { return o == s })
	s.base.close(s.user)
	s.base.claim = claim{}
}

// store returns the lvstore with the given UUID or name. Exactly one of them must be given.
func (e *engine) store(id, name *string) (*lvstore, error) {
	if (id == nil) == (name == nil) {
		return nil, errno(syscall.EINVAL)
	}
	i := slices.IndexFunc(e.stores, func(s *lvstore) bool {
		if id != nil {
			return strings.EqualFold(s.UUID, *id)
		}
		return s.Name == *name
	})
	if i < 0 {
		return nil, errno(syscall.ENODEV)
	}
	return e.stores[i], nil
}

func (e *engine) getLvstores(given bool, p spdkrpc.BdevLvolGetLvstoresParams) ([]spdkrpc.LvolStore, error) {
	stores := e.stores
	if given {
		s, err := e.store(p.UUID, p.LvsName)
		if err != nil {
			return nil, err
		}
		stores = []*lvstore{s}
	}
	list := make([]spdkrpc.LvolStore, len(stores))
	for i, s := range stores {
		list[i] = spdkrpc.LvolStore{
			UUID: s.UUID, Name: s.Name, BaseBdev: s.base.name, TotalDataClusters: s.TotalClusters, FreeClusters: s.free(),
			BlockSize: s.BlockSize, ClusterSize: s.ClusterSize, MaxGrowableSize: new(s.MaxClusters * s.ClusterSize),
		}
	}
	return list, nil
}

// free returns the number of clusters that no volume owns.
func (s *lvstore) free() uint64 {
	used := uint64(0)
	for _, l := range slices.Concat(s.lvols, s.lost) {
		used += l.Allocated
	}
	return s.TotalClusters - used
}

func (e *engine) renameLvstore(p spdkrpc.BdevLvolRenameLvstoreParams) error {
	s, err := e.store(nil, &p.OldName)
	if err != nil {
		return errno(syscall.ENOENT)
	}
	name := truncated(p.NewName)
	if name == s.Name {
		return nil
	}
	if name == "" || slices.ContainsFunc(e.stores, func(o *lvstore) bool { return o.Name == name }) {
		return invalid(syscall.EEXIST)
	}
	s.Name = name
	for _, l := range s.lvols {
		if l.bdev != nil {
			e.setAlias(l, l.Name)
		}
	}
	return errors.Join(e.dir.saveStore(s.storeRecord), e.writeMetadata(s.storeRecord))
}

// truncated returns a name truncated to the length of SPDK's buffers.
func truncated(name string) string { return name[:min(len(name), maxNameLength)] }

func (e *engine) deleteLvstore(p spdkrpc.BdevLvolDeleteLvstoreParams) error {
	s, err := e.store(p.UUID, p.LvsName)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.lvols, func(l *lvol) bool { return l.busy }) {
		if e.target.opts.Work > 0 {
			return errCrash // SPDK frees memory that the other call is still using
		}
		return invalid(syscall.EBUSY)
	}
	for _, l := range slices.Clone(s.lvols) {
		e.releaseExternal(l)
	}
	e.unloadStore(s)
	if s.Base != "" {
		if err := e.target.writeMark(s.Base, ""); err != nil {
			return invalid(syscall.EIO)
		}
	}
	e.media.drop(s.storeRecord)
	return e.dir.removeStore(s.storeRecord)
}

func (e *engine) growLvstore(p spdkrpc.BdevLvolGrowLvstoreParams) error {
	s, err := e.store(p.UUID, p.LvsName)
	if err != nil {
		return err
	}
	clusters := s.base.size() / s.ClusterSize
	if clusters <= s.MetaClusters+s.TotalClusters {
		return nil
	}
	if clusters > s.MaxClusters {
		return invalid(syscall.ENOSPC)
	}
	s.TotalClusters = clusters - s.MetaClusters
	return errors.Join(e.dir.saveStore(s.storeRecord), e.writeMetadata(s.storeRecord))
}
