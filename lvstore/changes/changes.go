package changes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/device"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Refusal means that the changes cannot be read. Errno is the reason: ENODEV means that the bdev
// is not a logical volume, EINVAL that these snapshots are not supported, EOPNOTSUPP that this
// target is not supported, EBADMSG that the data read is inconsistent, and EIO that the disk
// returned a read error. Text includes the remedy.
type Refusal struct {
	Errno syscall.Errno
	Text  string
	Err   error // the cause, if any

	outline string // Text without what only administrators may see; "" if that is the same
}

// ForTenant returns the Refusal without paths on the target's host, and without bdevs and snapshots
// that the caller did not name.
func (r *Refusal) ForTenant() *Refusal {
	if r.outline == "" {
		return r
	}
	return &Refusal{Errno: r.Errno, Text: r.outline}
}

func (r *Refusal) Error() string { return r.Text }

func (r *Refusal) Unwrap() error { return r.Err }

func refuse(errno syscall.Errno, format string, args ...any) *Refusal {
	return &Refusal{Errno: errno, Text: fmt.Sprintf(format, args...)}
}

// A Target is an SPDK target from which changes are read.
type Target struct {
	RPC     *spdkrpc.Client
	Release rpcschema.Release
	// AcceptUncounted accepts releases that do not report how many clusters a snapshot has
	// (rpcschema.CountsClusters). The metadata cannot be checked against these releases' reports.
	AcceptUncounted bool
	// Lock calls do while no other caller can change the bdevs that find returns. It calls find
	// once before and once after locking these bdevs. If Lock cancels the context passed to do, it
	// returns an error.
	Lock func(ctx context.Context, find func(context.Context) ([]string, error), do func(context.Context) error) error
	// Reserve is called before anything is locked, with the number of bytes that the reading and
	// its result need. If it returns an error, the reading fails. If Reserve is nil, memory use is
	// not limited.
	Reserve func(bytes int) error
}

// Changes describes the clusters that differ.
type Changes struct {
	Bitmap      []byte // cluster i is bit i%8 of byte i/8
	ClusterSize int64  // in bytes
	Size        int64  // size of the snapshot, in bytes
	// LUKS reports whether the snapshot or the base begins with a LUKS header.
	LUKS bool
	// Counted reports whether the target confirmed the number of clusters of each lvol whose
	// clusters were read.
	Counted bool
}

// A Reader reads changes. It caches the page on which each snapshot begins. It also caches the
// progress of reads that were interrupted or ran out of time, so that the next read of the same
// snapshots continues from there. A Reader is safe for concurrent use.
type Reader struct {
	mu       sync.Mutex
	blobs    map[string]uint64 // keyed by the UUIDs of the lvstore and the snapshot
	searched map[string]int64  // pages covered by unfinished searches, with the same keys

	// extents contains the extent pages of unfinished first readings and of unfinished second
	// readings.
	extents [2]blobstore.Extents
}

// maxRemembered is the maximum number of snapshots whose first page a Reader caches.
const maxRemembered = 100_000

// Read returns the clusters of a snapshot that may differ from those of base. If base is "", Read
// returns the clusters allocated in the snapshot and its ancestors. Snapshots are given by name,
// alias or UUID. The error is a *Refusal, an error from Lock or the target, such as
// spdkrpc.NoSuchDevice, or ctx's error.
func (r *Reader) Read(ctx context.Context, t Target, snapshot, base string) (*Changes, error) {
	q, err := newQuery(ctx, t, snapshot, base)
	if err != nil {
		return nil, err
	}
	return r.answer(ctx, q, snapshot, base)
}

// ReadVolume is like Read, but the lvol may be a volume. base must be a snapshot. The result
// includes all clusters written before the call, even if hosts write in the meantime. It may lack
// clusters written later.
func (r *Reader) ReadVolume(ctx context.Context, t Target, lvol, base string) (*Changes, error) {
	q, err := newQuery(ctx, t, lvol, base)
	if err != nil {
		return nil, err
	}
	q.volume = true
	return r.answer(ctx, q, lvol, base)
}

// HasExtentPage reports whether the lvol with this UUID has an extent page with this number. It
// also returns true for an lvol without extent pages, which lists its clusters directly. The caller
// must ensure that no other call changes the lvol.
func (r *Reader) HasExtentPage(ctx context.Context, rpc *spdkrpc.Client, uuid string, number uint64) (bool, error) {
	q, err := newQuery(ctx, Target{RPC: rpc, AcceptUncounted: true}, uuid, "")
	if err != nil {
		return false, err
	}
	if err := q.open(ctx); err != nil {
		return false, err
	}
	defer func() { _ = q.device.Close() }()
	for try := range 2 {
		id, err := r.blob(ctx, q, uuid)
		if err != nil {
			return false, err
		}
		has, err := blobstore.HasExtentPage(ctx, q.device, q.size, id, uuid, number)
		if err == nil || try > 0 {
			return has, err
		}
		r.forget(q) // another lvol may now begin on the cached page
	}
	panic("unreachable")
}

func (r *Reader) answer(ctx context.Context, q *query, snapshot, base string) (*Changes, error) {
	found, err := r.read(ctx, q)
	if errors.Is(err, blobstore.ErrMetadata) || errors.Is(err, blobstore.ErrNoLvol) {
		if _, missing := newQuery(ctx, q.Target, snapshot, base); missing != nil {
			return nil, missing // the lvol was deleted in the meantime, or the target has ended
		}
	}
	return found, err
}

func (r *Reader) read(ctx context.Context, q *query) (*Changes, error) {
	if err := q.open(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = q.device.Close() }()
	if err := r.locate(ctx, q); err != nil {
		return nil, err
	}
	for i := range q.kept {
		q.kept[i] = r.extents[i].Kept(q.place)
	}
	var result *Changes
	err := q.Lock(ctx, q.find, func(ctx context.Context) (err error) {
		result, err = q.readTwice(ctx)
		var refused *Refusal
		if err == nil || errors.As(err, &refused) { // otherwise, the next read continues this one
			for _, k := range q.kept {
				k.Forget()
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// locate finds the blobs of the snapshots, and checks the cost of reading their clusters. It runs
// before anything is locked, because it can take a long time.
func (r *Reader) locate(ctx context.Context, q *query) (err error) {
	for try := range findTries {
		if q.target.blob, err = r.blob(ctx, q, q.target.info.UUID); err != nil {
			return err
		}
		if q.base != nil {
			if q.base.blob, err = r.blob(ctx, q, q.base.info.UUID); err != nil {
				return err
			}
		}
		var v *blobstore.Reading
		if v, err = q.chains(ctx); err == nil {
			err = q.checkCost(v)
		}
		if !errors.Is(err, blobstore.ErrMetadata) {
			return err
		}
		if try == 0 {
			r.forget(q) // another snapshot may now begin on the cached page
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return err
}

func (r *Reader) blob(ctx context.Context, q *query, uuid string) (uint64, error) {
	key := q.store + " " + uuid
	r.mu.Lock()
	id, from := r.blobs[key], r.searched[key]
	r.mu.Unlock()
	if id != 0 {
		return id, nil
	}
	id, searched, err := blobstore.Find(ctx, q.device, q.size, uuid, from)
	if from > 0 && errors.Is(err, blobstore.ErrNoLvol) {
		id, searched, err = blobstore.Find(ctx, q.device, q.size, uuid, 0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.searched, key)
	if err != nil {
		if ctx.Err() != nil {
			remember(&r.searched, key, searched)
		}
		return 0, q.mismatch(err)
	}
	remember(&r.blobs, key, id)
	return id, nil
}

func remember[T any](m *map[string]T, key string, value T) {
	if len(*m) >= maxRemembered || *m == nil {
		*m = map[string]T{}
	}
	(*m)[key] = value
}

func (r *Reader) forget(q *query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.blobs, q.store+" "+q.target.info.UUID)
	if q.base != nil {
		delete(r.blobs, q.store+" "+q.base.info.UUID)
	}
}

// mismatch converts an error caused by unusable metadata.
func (q *query) mismatch(err error) error {
	place := "lvstore " + q.store
	if q.device != nil {
		place += " on " + q.device.Place
	}
	switch {
	case errors.Is(err, device.ErrRead):
		return &Refusal{syscall.EIO, fmt.Sprintf("bdev %s, which contains %s, cannot be read: %v. No changes were returned; retry. If the error persists, check the disk, and make a full backup by reading the snapshot.", *q.target.info.DriverSpecific.Lvol.BaseBdev, place, err), err,
			fmt.Sprintf("the metadata of lvstore %s cannot be read: %v. No changes were returned; retry. If the error persists, ask the administrator of this proxy to check the disk, and make a full backup by reading the snapshot.", q.store, device.ErrRead)}
	case errors.Is(err, blobstore.ErrUnsuitable):
		return &Refusal{syscall.EINVAL, fmt.Sprintf("%v (%s)", err, place), err,
			q.unsuitableOutline(err)}
	case errors.Is(err, blobstore.ErrFormat):
		return &Refusal{syscall.EOPNOTSUPP, fmt.Sprintf("%v (%s). Make a full backup by reading the snapshot. Changes can be read from lvstores that are created without md_page_size, on disks whose physical blocks have at most %d bytes.", err, place, blobstore.PageSize), err,
			fmt.Sprintf("the format of lvstore %s is not supported. Make a full backup by reading the snapshot.", q.store)}
	case errors.Is(err, errRenamed):
		return &Refusal{syscall.EBADMSG, err.Error(), err, "a snapshot has a different name in the target than on the device. No changes were returned. Ask the administrator of this proxy, and make a full backup by reading the snapshot."}
	case errors.Is(err, blobstore.ErrMetadata), errors.Is(err, blobstore.ErrNoLvol), errors.Is(err, blobstore.ErrSuperBlock), errors.Is(err, blobstore.ErrNoBlobstore):
		return &Refusal{syscall.EBADMSG, fmt.Sprintf("%v (%s). No changes were returned; retry. If the error persists, run spdk-proxy check-lvstore on the target's host before the target is restarted, and make a full backup by reading the snapshot.", err, place), err,
			blobstore.ErrMetadata.Error() + ". No changes were returned; retry. If the error persists, ask the administrator of this proxy, and make a full backup by reading the snapshot."}
	}
	return err
}

// unsuitableOutline returns the text of an ErrUnsuitable with only those names that the caller
// used.
func (q *query) unsuitableOutline(err error) string {
	cause, ok := errors.AsType[*blobstore.UnsuitableError](err)
	if !ok {
		return err.Error()
	}
	which := "a snapshot below the requested one"
	switch {
	case cause.Blob == q.target.blob:
		which = q.target.name
	case q.base != nil && cause.Blob == q.base.blob:
		which = q.base.name
	}
	return fmt.Sprintf("%v: %s %s", blobstore.ErrUnsuitable, which, cause.Reason)
}

// errRenamed means that the target and the device record different names for a snapshot. SPDK
// cannot rename snapshots, but it changes their bdev's alias before it returns the error.
var errRenamed = errors.New("a call of bdev_lvol_rename has failed")

// contradiction returns an error that reports a mismatch between the device and the target.
func (q *query) contradiction(format string, args ...any) error {
	return q.mismatch(fmt.Errorf("%w: "+format, append([]any{blobstore.ErrMetadata}, args...)...))
}

// open opens the lvstore's device.
func (q *query) open(ctx context.Context) error {
	list, err := q.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: q.target.info.DriverSpecific.Lvol.BaseBdev})
	if err != nil {
		return fmt.Errorf("describe the bdev of lvstore %s: %w", q.store, err)
	}
	if len(list) != 1 {
		return q.contradiction("the target does not describe its bdev")
	}
	if q.device, err = device.Open(ctx, q.rpc, list[0]); err != nil {
		var rpc *spdkrpc.Error
		if errors.Is(err, device.ErrRead) {
			return q.mismatch(err)
		}
		if errors.As(err, &rpc) || ctx.Err() != nil {
			return err
		}
		return &Refusal{syscall.EOPNOTSUPP, fmt.Sprintf("the metadata of lvstore %s on bdev %s cannot be read: %v. See docs/backup-volumes.md, or make a full backup by reading the snapshot.", q.store, list[0].Name, err), err,
			fmt.Sprintf("the metadata of lvstore %s cannot be read. Ask the administrator of this proxy, or make a full backup by reading the snapshot.", q.store)}
	}
	q.place = q.device.Place + " " + list[0].Name + " " + list[0].UUID
	if q.size = int64(list[0].NumBlocks) * int64(list[0].BlockSize); q.device.Size < q.size {
		defer func() { _ = q.device.Close() }()
		return q.contradiction("the target reports a device of %d bytes, but the device has %d", q.size, q.device.Size)
	}
	return nil
}
