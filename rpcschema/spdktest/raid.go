package spdktest

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A raid is an array that SPDK has assembled from a superblock on its only base bdev.
type raid struct{ base *bdev }

// A superblock describes a RAID. It is valid only on the bdev whose UUID it contains.
type superblock struct{ name, member string }

func (r *raid) describe(e *engine, b *bdev, info *spdkrpc.BdevInfo) {
	info.DriverSpecific.RAID = &spdkrpc.BdevDriverRAID{
		UUID: &b.uuid, StripSizeKB: 4, State: spdkrpc.BdevRAIDStateOnline, RAIDLevel: spdkrpc.BdevRAIDLevelConcat, Superblock: new(true),
		NumBaseBdevs: 1, NumBaseBdevsDiscovered: 1, NumBaseBdevsOperational: new(uint32(1)),
		BaseBdevsList: []*spdkrpc.BdevRAIDBaseBdevEntry{{Object: &spdkrpc.BdevRAIDBaseBdev{Name: &r.base.name, UUID: r.base.uuid, IsConfigured: true, DataSize: b.blocks}}},
	}
}

// assemble creates the array described by a superblock on a bdev, if the bdev is free.
func (e *engine) assemble(s superblock, base *bdev) {
	if s.member != base.uuid || base.claim.by != "" {
		return
	}
	b := &bdev{name: s.name, uuid: uuid.NewString(), product: "Raid Volume", blockSize: base.blockSize, blocks: base.blocks, driver: &raid{base}}
	user, err := base.open(true, func() { e.bdevs.remove(b) })
	if err != nil {
		return
	}
	if err := e.bdevs.add(b); err != nil {
		base.close(user)
		return
	}
	base.claim = claim{by: "raid", kind: exclusiveWrite}
	e.examine(b)
}

// WriteRAID simulates a host that writes a RAID superblock into the volume with the given UUID. The
// volume is the only member. SPDK assembles the RAID when it examines the volume, for example after
// a restart. WriteRAID does not work with a DataDir.
func (t *Target) WriteRAID(volume, name string) error {
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
		l.Written, l.superblock = "", superblock{name: name, member: l.UUID}
		return nil, nil
	})
	return err
}
