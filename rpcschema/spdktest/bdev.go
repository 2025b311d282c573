package spdktest

import (
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type bdev struct {
	name           string
	uuid           string
	aliases        []string
	product        string
	blockSize      uint32
	blocks         uint64
	readOnly       bool
	claim          claim
	limits         spdkrpc.BdevRateLimits
	samplingPeriod uint64 // sampling period of the queue depth, in us
	stat           spdkrpc.BdevIOStatBdev
	histogram      histogramSetting
	driver         driver      // implements the behavior of this kind of bdev
	users          []*bdevUser // notified when the bdev is removed
}

// A driver implements one kind of bdev.
type driver interface {
	// describe adds to info the properties specific to the kind of bdev.
	describe(e *engine, b *bdev, info *spdkrpc.BdevInfo)
}

// A claim records which module has claimed a bdev, and which kind of access other modules still
// have.
type claim struct {
	by     string // name of the module; "" if unclaimed
	kind   string // SPDK's name for the type of claim
	shared int    // number of holders of a shared claim
}

const (
	exclusiveWrite    = "exclusive_write"
	readManyWriteOne  = "read_many_write_one"
	readManyWriteNone = "read_many_write_none"
)

// A bdevUser is a module that has opened a bdev.
type bdevUser struct {
	writes    bool
	channel   bool       // the user does I/O, or may do so
	latencies *histogram // I/Os counted on the channel
	gone      func()     // called when the bdev is removed
}

// A registry finds bdevs by name, alias or UUID.
type registry struct {
	all     []*bdev // in order of registration
	byName  map[string]*bdev
	grown   chan struct{} // closed when a name is added
	notify  func(kind, object string)
	removed func(*bdev)
}

func (r *registry) init() { r.byName, r.grown = map[string]*bdev{}, make(chan struct{}) }

// name registers a name for b.
func (r *registry) name(b *bdev, name string) {
	r.byName[name] = b
	close(r.grown)
	r.grown = make(chan struct{})
}

// add registers a bdev under its name and UUID. It returns EINVAL if the name is empty, and EEXIST
// if a name is in use.
func (r *registry) add(b *bdev) error {
	if b.name == "" {
		return errno(syscall.EINVAL)
	}
	if b.uuid == "" {
		b.uuid = uuid.NewString()
	}
	if r.byName[b.name] != nil || r.byName[b.uuid] != nil {
		return errno(syscall.EEXIST)
	}
	r.all = append(r.all, b)
	r.name(b, b.name)
	if b.name != b.uuid {
		b.aliases = append(b.aliases, b.uuid)
		r.name(b, b.uuid)
	}
	r.notify("bdev_register", b.name)
	return nil
}

func (r *registry) addAlias(b *bdev, alias string) bool {
	if r.byName[alias] != nil {
		return false
	}
	b.aliases = append(b.aliases, alias)
	r.name(b, alias)
	return true
}

func (r *registry) dropAlias(b *bdev, alias string) {
	b.aliases = slices.DeleteFunc(b.aliases, func(a string) bool { return a == alias })
	delete(r.byName, alias)
}

func (r *registry) find(name string) (*bdev, bool) {
	b, ok := r.byName[name]
	return b, ok
}

// remove removes a bdev even if it is in use.
func (r *registry) remove(b *bdev) {
	if r.byName[b.name] != b {
		return
	}
	r.all = slices.DeleteFunc(r.all, func(o *bdev) bool { return o == b })
	r.notify("bdev_unregister", b.name)
	r.removed(b)
	delete(r.byName, b.name)
	for _, alias := range b.aliases {
		delete(r.byName, alias)
	}
	for _, u := range slices.Clone(b.users) {
		u.gone()
	}
	b.users = nil
}

// open opens a bdev until close is called. If writes is set and another module has claimed the
// bdev, open returns an error.
func (b *bdev) open(writes bool, gone func()) (*bdevUser, error) {
	if writes && (b.claim.by != "" || b.readOnly) {
		return nil, errno(syscall.EPERM)
	}
	u := &bdevUser{writes: writes, gone: gone}
	b.users = append(b.users, u)
	return u, nil
}

func (b *bdev) close(u *bdevUser) {
	b.users = slices.DeleteFunc(b.users, func(o *bdevUser) bool { return o == u })
}

func (b *bdev) size() uint64 { return b.blocks * uint64(b.blockSize) }

// info returns a bdev's description as in bdev_get_bdevs.
func (e *engine) info(b *bdev) spdkrpc.BdevInfo {
	info := spdkrpc.BdevInfo{
		Name: b.name, Aliases: slices.Clone(b.aliases), ProductName: b.product, BlockSize: b.blockSize, NumBlocks: b.blocks, UUID: b.uuid,
		AssignedRateLimits: b.limits, Claimed: b.claim.by != "",
		PreferredWriteAlignment: new(uint32), PreferredWriteGranularity: new(uint32), OptimalWriteSize: new(uint32),
		PreferredUnmapAlignment: new(uint32), PreferredUnmapGranularity: new(uint32),
		SupportedIOTypes: spdkrpc.BdevSupportedIOTypes{
			Read: true, Write: true, Reset: true,
			NVMeIOMD: new(bool), Zcopy: new(bool), GetZoneInfo: new(bool), ZoneManagement: new(bool), ZoneAppend: new(bool),
			SeekHole: new(bool), SeekData: new(bool), Copy: new(bool), NVMeIovMD: new(bool), NVMeNssr: new(bool), WriteUncorrectable: new(bool),
		},
	}
	if info.Aliases == nil {
		info.Aliases = []string{}
	}
	if info.Claimed {
		info.ClaimType = new(spdkrpc.BdevInfoClaimType(b.claim.kind))
	}
	b.driver.describe(e, b, &info)
	return info
}

func init() {
	handle("bdev_get_bdevs", (*engine).bdevGetBdevs)
}

func (e *engine) bdevGetBdevs(p spdkrpc.BdevGetBdevsParams) ([]spdkrpc.BdevInfo, error) {
	if p.Name != nil {
		b, err := e.await(*p.Name, time.Duration(min(value(p.Timeout), maxTimeout))*time.Millisecond)
		if err != nil {
			return nil, err
		}
		return []spdkrpc.BdevInfo{e.info(b)}, nil
	}
	list := make([]spdkrpc.BdevInfo, len(e.bdevs.all))
	for i, b := range e.bdevs.all {
		list[i] = e.info(b)
	}
	return list, nil
}

// maxTimeout is the longest wait, in ms, that fits in a time.Duration.
const maxTimeout = 1 << 40

// await returns the named bdev. If timeout is not 0, await waits for the bdev to appear.
func (e *engine) await(name string, timeout time.Duration) (*bdev, error) {
	b, ok := e.bdevs.find(name)
	if ok || timeout == 0 {
		return b, orMissing(ok)
	}
	expired := time.After(timeout)
	for late := false; ; {
		if b, ok := e.bdevs.find(name); ok {
			return b, nil
		}
		if late {
			return nil, errno(syscall.ETIMEDOUT)
		}
		grown := e.bdevs.grown
		err := e.unlocked(func() error {
			select {
			case <-grown:
			case <-expired:
				late = true
			case <-e.gone:
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

func orMissing(found bool) error {
	if !found {
		return errno(syscall.ENODEV)
	}
	return nil
}
