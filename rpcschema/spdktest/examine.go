package spdktest

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func init() {
	handle("bdev_set_options", func(e *engine, p spdkrpc.BdevSetOptionsParams) (bool, error) {
		if p.BdevAutoExamine != nil {
			e.examineListed = !*p.BdevAutoExamine
		}
		return true, nil
	})
	query("bdev_wait_for_examine", func(*engine) (bool, error) { return true, nil })
	handle("bdev_examine", (*engine).bdevExamine)
}

// bdevExamine adds a name to the list of bdevs to examine, and examines the bdev if it exists.
func (e *engine) bdevExamine(p spdkrpc.BdevExamineParams) (bool, error) {
	switch {
	case !e.examineListed:
		return false, errno(syscall.EINVAL)
	case slices.Contains(e.toExamine, p.Name):
		return false, errno(syscall.EEXIST)
	}
	e.toExamine = append(e.toExamine, p.Name)
	if b, ok := e.bdevs.find(p.Name); ok {
		e.examine(b)
	}
	return true, nil
}

// examines reports whether SPDK examines a bdev. If it examines only listed bdevs, the list must
// contain the bdev's name or an alias.
func (e *engine) examines(b *bdev) bool {
	return !e.examineListed || slices.Contains(e.toExamine, b.name) ||
		slices.ContainsFunc(b.aliases, func(alias string) bool { return slices.Contains(e.toExamine, alias) })
}

// examine creates the bdevs that were waiting for a new bdev, and that claim it. It then looks for
// an lvstore on the new bdev.
func (e *engine) examine(b *bdev) {
	if !e.examines(b) {
		return
	}
	e.examineStacks(b)
	var found string
	switch d := b.driver.(type) {
	case *aio:
		found = e.target.readMark(d.path)
	case *lvol:
		found = d.Written
		e.assemble(d.superblock, b)
	}
	if r, ok := e.media.get(found); ok {
		taken := slices.ContainsFunc(e.stores, func(s *lvstore) bool { return s.UUID == r.UUID || s.Name == r.Name })
		_, onVolume := b.driver.(*lvol)
		if !taken && b.claim.by == "" && (onVolume || !b.readOnly) {
			r.BlockSize = uint64(b.blockSize)
			e.loadStore(b, r)
		}
	}
	e.wakeDegraded(b)
}

// A WrittenStore is an lvstore that a host has written into a volume.
type WrittenStore struct {
	Name  string
	Lvols []WrittenLvol
}

// A WrittenLvol is a logical volume of four clusters in a WrittenStore.
type WrittenLvol struct {
	Name     string
	UUID     string // "" for a new one
	External string // UUID of its external parent bdev
}

// WriteStore simulates a host that writes an lvstore into the volume with the given UUID. SPDK
// loads the lvstore when it examines the volume, or a later snapshot or clone of it. WriteStore
// does not work with a DataDir.
func (t *Target) WriteStore(volume string, w WrittenStore) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.engine == nil || t.dir != nil {
		return errors.New("the target is down, or has a DataDir")
	}
	_, err := t.engine.do(func() (any, error) {
		l, err := t.engine.lvol(volume)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", volume, err)
		}
		r := &storeRecord{UUID: uuid.NewString(), Name: w.Name, Base: "volume", ClusterSize: l.store.ClusterSize, BlockSize: l.store.BlockSize, lvols: map[string]*lvolRecord{}}
		if err := r.format(l.Clusters*l.store.ClusterSize/l.store.BlockSize, 100, metadataPage); err != nil {
			return nil, err
		}
		for i, v := range w.Lvols {
			if v.UUID == "" {
				v.UUID = uuid.NewString()
			}
			r.lvols[v.UUID] = &lvolRecord{UUID: v.UUID, Name: v.Name, Order: i, Clusters: 4, Thin: true, External: v.External}
		}
		t.media.put(r)
		l.Written, l.superblock = r.UUID, superblock{}
		return nil, nil
	})
	return err
}
