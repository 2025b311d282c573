package spdktest

import (
	"slices"
	"syscall"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A passthru bdev stands in front of another, which it claims. SPDK remembers
// the pair, so that the passthru comes when its base does.
type passthru struct {
	base *bdev
	user *bdevUser
}

func (t *passthru) describe(e *engine, b *bdev, info *spdkrpc.BdevInfo) {
	t.base.driver.describe(e, t.base, info)
	info.DriverSpecific = spdkrpc.BdevDriverSpecific{Passthru: &spdkrpc.BdevDriverPassthru{Name: b.name, BaseBdevName: t.base.name}}
	info.ProductName = b.product
}

// A passthruPair is what was asked for.
type passthruPair struct{ name, base, uuid string }

func init() {
	handle("bdev_passthru_create", (*engine).bdevPassthruCreate)
	confirm("bdev_passthru_delete", (*engine).bdevPassthruDelete)
}

func (e *engine) bdevPassthruCreate(p spdkrpc.BdevPassthruCreateParams) (string, error) {
	if slices.ContainsFunc(e.bdevMod.passthrus, func(o passthruPair) bool { return o.name == p.Name }) {
		return "", errno(syscall.EEXIST)
	}
	pair := passthruPair{p.Name, p.BaseBdevName, normalUUID(p.UUID)}
	if base, ok := e.bdevs.find(p.BaseBdevName); ok {
		if err := e.addPassthru(pair, base); err != nil {
			return "", err
		}
	}
	e.bdevMod.passthrus = append(e.bdevMod.passthrus, pair)
	return p.Name, nil
}

func (e *engine) addPassthru(pair passthruPair, base *bdev) error {
	t := &passthru{base: base}
	b := &bdev{name: pair.name, uuid: pair.uuid, product: "passthru", blockSize: base.blockSize, blocks: base.blocks, driver: t}
	if b.uuid == "" { // made of the base's, so that it is the same each time
		space := uuid.MustParse("7e25812e-c8c0-4d3f-8599-16d790555b85")
		b.uuid = uuid.NewSHA1(space, []byte(base.uuid)).String()
	}
	user, err := base.open(true, func() { e.bdevs.remove(b) })
	if err != nil {
		return err
	}
	if err := e.bdevs.add(b); err != nil {
		base.close(user)
		return err
	}
	t.user = user
	base.claim = claim{by: "passthru", kind: exclusiveWrite}
	e.examine(b)
	return nil
}

// examinePassthru makes the passthrus that waited for a bdev.
func (e *engine) examinePassthru(base *bdev) {
	for _, pair := range e.bdevMod.passthrus {
		if _, there := e.bdevs.find(pair.name); !there && pair.base == base.name {
			_ = e.addPassthru(pair, base) // SPDK only logs that it could not
		}
	}
}

func (e *engine) bdevPassthruDelete(p spdkrpc.BdevPassthruDeleteParams) error {
	b, t, err := findOfKind[*passthru](e, p.Name)
	if err != nil {
		return err
	}
	e.bdevMod.passthrus = slices.DeleteFunc(e.bdevMod.passthrus, func(o passthruPair) bool { return o.name == b.name })
	e.bdevs.remove(b)
	t.base.close(t.user)
	t.base.claim = claim{}
	return nil
}
