package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/device"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A query is a request for changes.
type query struct {
	Target
	rpc    *spdkrpc.Client
	target *snapshot
	base   *snapshot // nil if there is no base
	volume bool      // the target may be a volume
	store  string    // UUID of the lvstore
	device *device.Device
	size   int64  // size of the bdev, in bytes
	place  string // identifies the device
	kept   [2]*blobstore.Kept

	// described contains the target's description of each snapshot in the chains, as of the last
	// call of find.
	described map[string]*spdkrpc.BdevInfo // by UUID
}

// A snapshot is one of the two requested snapshots.
type snapshot struct {
	name string // as the caller named it
	info *spdkrpc.BdevInfo
	blob uint64 // id of its blob
}

// newQuery looks up the snapshots named by a request.
func newQuery(ctx context.Context, t Target, name, base string) (*query, error) {
	q := &query{Target: t, rpc: t.RPC}
	var err error
	if q.target, err = q.lookUp(ctx, name); err != nil {
		return nil, err
	}
	q.store = *q.target.info.DriverSpecific.Lvol.LvolStoreUUID
	if base != "" {
		if q.base, err = q.lookUp(ctx, base); err != nil {
			return nil, err
		}
		if other := *q.base.info.DriverSpecific.Lvol.LvolStoreUUID; other != q.store {
			return nil, refuse(syscall.EINVAL, "the snapshots %s and %s are in different lvstores. Make a full backup, without a base.", name, base)
		}
	}
	if !t.Release.Has(rpcschema.CountsClusters) && !t.AcceptUncounted {
		return nil, refuse(syscall.EOPNOTSUPP, "SPDK %s does not report how many clusters a snapshot has (%s does), so the proxy cannot check what it reads. Upgrade the target, or set target.accept_changes_without_counts in the proxy's configuration to skip this check.",
			t.Release, rpcschema.CountsClusters.Since())
	}
	return q, nil
}

func (q *query) lookUp(ctx context.Context, name string) (*snapshot, error) {
	list, err := q.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &name})
	missing, ok := errors.AsType[*spdkrpc.Error](err)
	switch {
	case ok && missing.Kind == spdkrpc.NoSuchDevice:
		named := *missing
		named.Message = fmt.Sprintf("bdev %s does not exist: check the name. If the target has just started, retry. If the snapshot was deleted, make a full backup.", name)
		return nil, &named
	case err != nil:
		return nil, err
	case len(list) != 1 || list[0].DriverSpecific.Lvol == nil:
		return nil, refuse(syscall.ENODEV, "bdev %s is not a snapshot of a logical volume", name)
	}
	l := list[0].DriverSpecific.Lvol
	switch {
	case l.EsnapClone != nil && *l.EsnapClone:
		return nil, refuse(syscall.EINVAL, "snapshot %s reads from a bdev outside the lvstore (external snapshot), whose changes are unknown. Make a full backup by reading the snapshot.", name)
	case l.LvolStoreUUID == nil || l.BaseBdev == nil:
		return nil, refuse(syscall.EBADMSG, "the target does not report the lvstore of snapshot %s. Check the release of the target.", name)
	}
	return &snapshot{name: name, info: &list[0]}, nil
}

// ids returns the snapshots' blob ids.
func (q *query) ids() (target, base uint64) {
	if q.base != nil {
		base = q.base.blob
	}
	return q.target.blob, base
}

// chains reads the chains from the device, and checks that they begin with the requested snapshots.
func (q *query) chains(ctx context.Context) (*blobstore.Reading, error) {
	target, base := q.ids()
	v, err := blobstore.ReadChains(ctx, q.device, q.size, target, base)
	if err != nil {
		return nil, q.mismatch(err)
	}
	return v, q.checkHeads(v)
}

func (q *query) checkHeads(v *blobstore.Reading) error {
	switch {
	case v.StoreUUID != q.store:
		return q.contradiction("it has lvstore %s", v.StoreUUID)
	case v.Target[0].UUID != q.target.info.UUID:
		return q.contradiction("blob %#x is not snapshot %s", q.target.blob, q.target.info.UUID)
	case q.base != nil && v.Base[0].UUID != q.base.info.UUID:
		return q.contradiction("blob %#x is not snapshot %s", q.base.blob, q.base.info.UUID)
	}
	if err := q.checkSize(v, v.Target[0], q.target.info); err != nil || q.base == nil {
		return err
	}
	return q.checkSize(v, v.Base[0], q.base.info)
}

func (q *query) checkSize(v *blobstore.Reading, l *blobstore.Lvol, b *spdkrpc.BdevInfo) error {
	if size := int64(b.NumBlocks) * int64(b.BlockSize); size != int64(l.Clusters)*v.Super.ClusterSize {
		return q.contradiction("snapshot %s (%s) has %d bytes in the target, and %d clusters of %d on the device", l.Name, l.UUID, size, l.Clusters, v.Super.ClusterSize)
	}
	return nil
}

// checkCost checks that reading the chains stays within the limits, and reserves the memory for it.
// It must be called before anything is locked.
func (q *query) checkCost(v *blobstore.Reading) error {
	if err := v.Suitable(q.volume); err != nil {
		return q.mismatch(err)
	}
	if q.Reserve == nil {
		return nil
	}
	// Two readings need this memory, as do three copies of the base64-encoded response: the value,
	// its text, and the text's buffer.
	return q.Reserve(2*v.Memory() + 5*int(v.Target[0].Clusters/8))
}

// maxQuestions is the maximum number of concurrent calls to the target.
const maxQuestions = 16

// These constants control how find retries. The chains are not locked at first, so a deletion may
// change them during a read.
const (
	findTries = 5
	findPause = 50 * time.Millisecond
)

// find calls findOnce until two results match.
func (q *query) find(ctx context.Context) (names []string, err error) {
	for range findTries {
		if names, err = q.findOnce(ctx); !errors.Is(err, blobstore.ErrMetadata) {
			return names, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
	return nil, err
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(findPause):
		return nil
	}
}

// findOnce reads the chains, queries the target for each snapshot in them, and returns the
// snapshots' names.
func (q *query) findOnce(ctx context.Context) (names []string, err error) {
	v, err := q.chains(ctx)
	if err != nil {
		return nil, err
	}
	uuids := map[string]bool{}
	for _, chain := range [][]*blobstore.Lvol{v.Target, v.Base} {
		for _, l := range chain {
			uuids[l.UUID] = true
		}
	}
	answers := make(chan *spdkrpc.BdevInfo, len(uuids))
	g, bounded := errgroup.WithContext(ctx)
	g.SetLimit(maxQuestions)
	for uuid := range uuids {
		g.Go(func() error {
			list, err := q.rpc.BdevGetBdevs(bounded, spdkrpc.BdevGetBdevsParams{Name: &uuid})
			if errors.Is(err, spdkrpc.NoSuchDevice) || err == nil && (len(list) != 1 || list[0].UUID != uuid) {
				return q.contradiction("the target has no snapshot %s", uuid)
			}
			if err == nil {
				answers <- &list[0]
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	close(answers)
	q.described = map[string]*spdkrpc.BdevInfo{}
	for b := range answers {
		q.described[b.UUID] = b
		names = append(append(names, b.Name), b.Aliases...)
	}
	return names, nil
}

// readTwice reads the changes twice while the chains are locked, and checks both readings.
func (q *query) readTwice(ctx context.Context) (*Changes, error) {
	first, err := q.readOnce(ctx, q.kept[0])
	if err != nil {
		return nil, q.mismatch(err)
	}
	if err := q.check(first); err != nil {
		return nil, err
	}
	second, err := q.readOnce(ctx, q.kept[1])
	if err != nil {
		return nil, q.mismatch(err)
	}
	if !first.Equal(second) {
		return nil, q.contradiction("two readings differ")
	}
	cluster := first.Super.ClusterSize
	return &Changes{
		Bitmap: first.Changed, ClusterSize: cluster, Size: int64(first.Target[0].Clusters) * cluster,
		LUKS: hasLUKS(first.TargetStart) || hasLUKS(first.BaseStart), Counted: q.Release.Has(rpcschema.CountsClusters),
	}, nil
}

func (q *query) readOnce(ctx context.Context, kept *blobstore.Kept) (*blobstore.Reading, error) {
	target, base := q.ids()
	if q.volume {
		return blobstore.ReadVolumeChanges(ctx, q.device, q.size, target, base, kept)
	}
	return blobstore.ReadChanges(ctx, q.device, q.size, target, base, kept)
}

// hasLUKS reports whether a device begins with a LUKS header. LUKS2 has a second header at 16 KiB,
// from which the first header can be repaired.
func hasLUKS(start []byte) bool {
	const second = 16 << 10
	return bytes.HasPrefix(start, []byte("LUKS\xba\xbe")) || len(start) > second && bytes.HasPrefix(start[second:], []byte("SKUL\xba\xbe"))
}

// check compares a reading with the target's report.
func (q *query) check(v *blobstore.Reading) error {
	if err := q.checkHeads(v); err != nil {
		return err
	}
	for _, chain := range [][]*blobstore.Lvol{v.Target, v.Base} {
		for i, l := range chain {
			var below *blobstore.Lvol
			if i+1 < len(chain) {
				below = chain[i+1]
			}
			if err := q.checkLvol(v, l, below); err != nil {
				return err
			}
		}
	}
	return nil
}

func (q *query) checkLvol(v *blobstore.Reading, l, below *blobstore.Lvol) error {
	b := q.described[l.UUID]
	if b == nil || b.DriverSpecific.Lvol == nil {
		return q.contradiction("snapshot %s (%s) was not an ancestor of these snapshots before", l.Name, l.UUID)
	}
	d := b.DriverSpecific.Lvol
	parent := ""
	if d.BaseSnapshot != nil {
		parent = *d.BaseSnapshot
	}
	on := ""
	if below != nil {
		on = below.Name
	}
	switch {
	case l.ReadOnly() && len(b.Aliases) == 1 && b.Aliases[0] != v.StoreName+"/"+l.Name && strings.HasPrefix(b.Aliases[0], v.StoreName+"/"):
		return q.mismatch(fmt.Errorf("%w: snapshot %s/%s (%s) is called %s in the target. SPDK changes this name even if it refuses to rename a snapshot. No changes were returned. Call bdev_lvol_rename old_name=%s new_name=%s on the target's own socket, or restart the target, and retry",
			errRenamed, v.StoreName, l.Name, l.UUID, b.Aliases[0], l.UUID, l.Name))
	case d.LvolStoreUUID == nil || *d.LvolStoreUUID != q.store || len(b.Aliases) != 1 || b.Aliases[0] != v.StoreName+"/"+l.Name:
		return q.contradiction("snapshot %s/%s (%s) has different names in the target: %v", v.StoreName, l.Name, l.UUID, b.Aliases)
	case d.EsnapClone != nil && *d.EsnapClone || parent != on:
		return q.contradiction("the target reports snapshot %q as the parent of %s (%s), but on the device it is %q", parent, l.Name, l.UUID, on)
	}
	if err := q.checkSize(v, l, b); err != nil {
		return err
	}
	switch {
	case !l.Counted || !q.Release.Has(rpcschema.CountsClusters):
		return nil
	case d.NumAllocatedClusters == nil:
		return q.contradiction("the target does not report how many clusters snapshot %s (%s) has", l.Name, l.UUID)
	case *d.NumAllocatedClusters != l.Allocated:
		return q.contradiction("snapshot %s (%s) has %d clusters in the target, and %d on the device", l.Name, l.UUID, *d.NumAllocatedClusters, l.Allocated)
	}
	return nil
}
