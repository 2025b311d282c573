package spdktest

import (
	"slices"
	"syscall"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A stacked bdev (passthru or crypto) lies on top of a base bdev, which it claims. If the base bdev
// does not exist yet, SPDK stores the request, and creates the stacked bdev when the base bdev
// appears.
type stacked struct {
	stackPlan
	base *bdev
	user *bdevUser
}

// A stackPlan is the request for a stacked bdev.
type stackPlan struct {
	module, name, base, uuid string
	key                      *cryptoKey // for a crypto bdev
	ownKey                   bool       // the key was created only for this bdev
}

// stackSpaces contains the UUID namespaces of stacked bdevs. A stacked bdev's UUID depends only on
// that of its base bdev, so it is the same after each start.
var stackSpaces = map[string]uuid.UUID{
	"passthru": uuid.MustParse("7e25812e-c8c0-4d3f-8599-16d790555b85"),
	"crypto":   uuid.MustParse("f6e8a7ba-8d3b-4d94-bd87-f13c4a1e4bbd"),
}

func (s *stacked) describe(e *engine, b *bdev, info *spdkrpc.BdevInfo) {
	s.base.driver.describe(e, s.base, info)
	info.ProductName = b.product
	info.DriverSpecific = spdkrpc.BdevDriverSpecific{}
	if s.module == "passthru" {
		info.DriverSpecific.Passthru = &spdkrpc.BdevDriverPassthru{Name: b.name, BaseBdevName: s.base.name}
		return
	}
	info.SupportedIOTypes.Compare, info.SupportedIOTypes.Abort = false, false
	info.SupportedIOTypes.Zcopy, info.SupportedIOTypes.Copy = new(false), new(false)
	if e.before("v24.05") {
		info.MemoryDomains = append(info.MemoryDomains, e.memoryDomains()...)
	}
	info.DriverSpecific.Crypto = &spdkrpc.BdevDriverCrypto{Name: b.name, BaseBdevName: s.base.name, KeyName: s.key.Name}
}

func init() {
	handle("bdev_passthru_create", func(e *engine, p spdkrpc.BdevPassthruCreateParams) (string, error) {
		return e.stack(stackPlan{module: "passthru", name: p.Name, base: p.BaseBdevName, uuid: normalUUID(p.UUID)})
	})
	confirm("bdev_passthru_delete", func(e *engine, p spdkrpc.BdevPassthruDeleteParams) error { return e.unstack("passthru", p.Name) })
	confirm("bdev_crypto_delete", func(e *engine, p spdkrpc.BdevCryptoDeleteParams) error { return e.unstack("crypto", p.Name) })
}

// config returns the call that recreates the bdev.
func (s *stacked) config(b *bdev) configCall {
	if s.module == "crypto" {
		return configCall{"bdev_crypto_create", spdkrpc.BdevCryptoCreateParams{BaseBdevName: s.base.name, Name: b.name, KeyName: new(s.key.Name)}}
	}
	return configCall{"bdev_passthru_create", spdkrpc.BdevPassthruCreateParams{BaseBdevName: s.base.name, Name: b.name, UUID: new(b.uuid)}}
}

func (e *engine) stack(p stackPlan) (string, error) {
	if slices.ContainsFunc(e.bdevMod.stacks, func(o stackPlan) bool { return o.module == p.module && o.name == p.name }) {
		return "", errno(syscall.EEXIST)
	}
	var err error
	if base, ok := e.bdevs.find(p.base); ok {
		err = e.raise(p, base)
	}
	if err == nil || p.module == "passthru" { // the passthru module stores even failed requests
		e.bdevMod.stacks = append(e.bdevMod.stacks, p)
	}
	return p.name, err
}

// raise creates the planned bdev on top of its base bdev.
func (e *engine) raise(p stackPlan, base *bdev) error {
	s := &stacked{stackPlan: p, base: base}
	b := &bdev{name: p.name, uuid: p.uuid, product: p.module, blockSize: base.blockSize, blocks: base.blocks, driver: s}
	if b.uuid == "" {
		b.uuid = uuid.NewSHA1(stackSpaces[p.module], []byte(base.uuid)).String()
	}
	user, err := base.open(true, func() { e.bdevs.remove(b) })
	if err != nil {
		return err
	}
	if err := e.bdevs.add(b); err != nil {
		base.close(user)
		return err
	}
	s.user = user
	base.claim = claim{by: p.module, kind: exclusiveWrite}
	e.examine(b)
	return nil
}

// examineStacks creates the stacked bdevs that were waiting for a base bdev.
func (e *engine) examineStacks(base *bdev) {
	for _, p := range e.bdevMod.stacks {
		if _, there := e.bdevs.find(p.name); !there && p.base == base.name {
			_ = e.raise(p, base) // SPDK only logs the failure
		}
	}
}

func (e *engine) unstack(module, name string) error {
	b, s, err := findOfKind[*stacked](e, name)
	if err != nil || s.module != module {
		return errno(syscall.ENODEV)
	}
	e.bdevMod.stacks = slices.DeleteFunc(e.bdevMod.stacks, func(o stackPlan) bool { return o.module == module && o.name == b.name })
	e.bdevs.remove(b)
	s.base.close(s.user)
	s.base.claim = claim{}
	if s.ownKey {
		e.dropCryptoKey(s.key)
	}
	return nil
}
