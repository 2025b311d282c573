package spdktest

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Simulated malloc and null bdevs have a size but no readable data. Lvstores can be created on
// them. Both kinds disappear in a crash.

type malloc struct {
	params spdkrpc.BdevMallocCreateParams
}

func (m *malloc) describe(e *engine, b *bdev, info *spdkrpc.BdevInfo) {
	t := &info.SupportedIOTypes
	t.Unmap, t.Flush, t.WriteZeroes, t.Abort = true, true, true, true
	t.Zcopy, t.Copy = new(true), new(true)
	t.Compare = !e.before("v24.05")
	info.NUMAID = b.numaID()
	if e.before("v24.05") {
		info.MemoryDomains = e.memoryDomains()
	}
}

// numaID returns the NUMA node that a bdev reports, or nil. Memory bdevs report the value that
// means any node.
func (b *bdev) numaID() *int32 {
	if _, ok := b.driver.(*malloc); ok {
		return new(int32(-1))
	}
	return nil
}

// hasDomains reports whether volumes on the bdev report memory domains.
func (b *bdev) hasDomains() bool {
	_, ok := b.driver.(*malloc)
	return ok
}

// memoryDomains returns the memory domains of memory bdevs. Up to v24.01, the memory bdevs
// themselves also report these domains.
func (e *engine) memoryDomains() []spdkrpc.BdevMemoryDomain {
	accel := spdkrpc.BdevMemoryDomain{DMADeviceID: new("SPDK_ACCEL_DMA_DEVICE"), DMADeviceType: e.deviceType(spdkrpc.BdevMemoryDomainDMADeviceTypeStringAccel, 2)}
	if e.before("v24.05") {
		return []spdkrpc.BdevMemoryDomain{accel}
	}
	return []spdkrpc.BdevMemoryDomain{{DMADeviceID: new("system"), DMADeviceType: e.deviceType(spdkrpc.BdevMemoryDomainDMADeviceTypeStringDMA, 1)}, accel}
}

// deviceType returns the type of a device that can access memory. Before v26.05, SPDK wrote it as a
// number.
func (e *engine) deviceType(name spdkrpc.BdevMemoryDomainDMADeviceTypeString, number int32) spdkrpc.BdevMemoryDomainDMADeviceType {
	if e.before("v26.05") {
		return spdkrpc.BdevMemoryDomainDMADeviceType{Integer: &number}
	}
	return spdkrpc.BdevMemoryDomainDMADeviceType{String: &name}
}

type null struct{ params spdkrpc.BdevNullCreateParams }

func (*null) describe(_ *engine, _ *bdev, info *spdkrpc.BdevInfo) {
	info.SupportedIOTypes.WriteZeroes, info.SupportedIOTypes.Abort = true, true
}

// config returns the call that recreates the bdev.
func (m *malloc) config(e *engine, b *bdev) spdkrpc.BdevMallocCreateParams {
	p := spdkrpc.BdevMallocCreateParams{
		Name: new(b.name), NumBlocks: b.blocks, BlockSize: b.blockSize, PhysicalBlockSize: new(or(m.params.PhysicalBlockSize, b.blockSize)),
		UUID: new(b.uuid), OptimalIOBoundary: new(value(m.params.OptimalIOBoundary)),
	}
	if !e.before("v24.09") {
		p.MDSize, p.DIFType, p.DIFIsHeadOfMD = new(value(m.params.MDSize)), new(value(m.params.DIFType)), new(value(m.params.DIFIsHeadOfMD))
		p.DIFPiFormat, p.NUMAID = new(value(m.params.DIFPiFormat)), b.numaID()
	}
	return p
}

// config returns the call that recreates the bdev.
func (n *null) config(b *bdev) spdkrpc.BdevNullCreateParams {
	p := n.params
	return spdkrpc.BdevNullCreateParams{
		Name: b.name, NumBlocks: b.blocks, BlockSize: b.blockSize, PhysicalBlockSize: new(or(p.PhysicalBlockSize, b.blockSize)), UUID: new(b.uuid),
		MDSize: new(value(p.MDSize)), DIFType: new(value(p.DIFType)), DIFIsHeadOfMD: new(value(p.DIFIsHeadOfMD)), DIFPiFormat: new(value(p.DIFPiFormat)),
		PreferredWriteAlignment: new(value(p.PreferredWriteAlignment)), PreferredWriteGranularity: new(value(p.PreferredWriteGranularity)),
		OptimalWriteSize: new(value(p.OptimalWriteSize)), PreferredUnmapAlignment: new(value(p.PreferredUnmapAlignment)),
		PreferredUnmapGranularity: new(value(p.PreferredUnmapGranularity)),
	}
}

// mallocMemory is the size, in bytes, of the largest malloc bdev that fits in the target's memory.
const mallocMemory = 1 << 32

// bdevModules contains the modules' counters.
type bdevModules struct {
	mallocs int
	stacks  []stackPlan
}

func init() {
	handle("bdev_malloc_create", (*engine).bdevMallocCreate)
	confirm("bdev_malloc_delete", func(e *engine, p spdkrpc.BdevMallocDeleteParams) error {
		return removeOfKind[*malloc](e, p.Name)
	})
	handle("bdev_null_create", (*engine).bdevNullCreate)
	confirm("bdev_null_delete", func(e *engine, p spdkrpc.BdevNullDeleteParams) error {
		return removeOfKind[*null](e, p.Name)
	})
	confirm("bdev_null_resize", (*engine).bdevNullResize)
}

func removeOfKind[D driver](e *engine, name string) error {
	b, _, err := findOfKind[D](e, name)
	if err != nil {
		return err
	}
	return e.unregister(b)
}

func (e *engine) bdevMallocCreate(p spdkrpc.BdevMallocCreateParams) (string, error) {
	switch block := uint64(p.BlockSize); {
	case p.NumBlocks == 0 || block%512 != 0 || value(p.PhysicalBlockSize)%512 != 0:
		return "", errno(syscall.EINVAL)
	case block == 0 || p.NumBlocks >= mallocMemory/block:
		return "", errno(syscall.ENOMEM)
	}
	name := value(p.Name)
	if p.Name == nil {
		name = fmt.Sprintf("Malloc%d", e.bdevMod.mallocs)
		e.bdevMod.mallocs++
	}
	b := &bdev{
		name: name, uuid: normalUUID(p.UUID), product: "Malloc disk", blockSize: p.BlockSize, blocks: p.NumBlocks,
		driver: &malloc{p},
	}
	if err := e.bdevs.add(b); err != nil {
		return "", err
	}
	e.examine(b)
	return b.name, nil
}

func (e *engine) bdevNullCreate(p spdkrpc.BdevNullCreateParams) (string, error) {
	if p.NumBlocks == 0 || p.BlockSize == 0 || p.BlockSize%512 != 0 || value(p.PhysicalBlockSize)%512 != 0 {
		return "", errno(syscall.EINVAL)
	}
	b := &bdev{
		name: p.Name, uuid: normalUUID(p.UUID), product: "Null disk", blockSize: p.BlockSize, blocks: p.NumBlocks, driver: &null{p},
	}
	if err := e.bdevs.add(b); err != nil {
		return "", err
	}
	e.examine(b)
	return b.name, nil
}

func (e *engine) bdevNullResize(p spdkrpc.BdevNullResizeParams) error {
	b, _, err := findOfKind[*null](e, p.Name)
	if err != nil {
		return err
	}
	return e.resize(b, uint64(p.NewSize)<<20/uint64(b.blockSize))
}

// resize changes a bdev's size. An open bdev can only grow.
func (e *engine) resize(b *bdev, blocks uint64) error {
	if blocks < b.blocks && len(b.users) > 0 {
		return errno(syscall.EBUSY)
	}
	if b.blocks != blocks && !e.before("v25.09") {
		e.notify("bdev_resize", b.name)
	}
	b.blocks = blocks
	return nil
}

// normalUUID returns a UUID in SPDK's spelling.
func normalUUID(p *string) string { return strings.ToLower(value(p)) }
