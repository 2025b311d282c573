package main

import (
	"context"
	"crypto/sha256"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// copied takes a snapshot of a volume, restores it to a larger volume, and clones the original
// volume, while the original is being written to.
func (s *scenario) copied(p *plugin, t copies, fsType string) {
	size := smallest(fsType)
	larger := 2 * size
	if s.sameSize {
		larger = size
	}
	v := s.newCSIVolume(p, control.OriginPrefix+fsType, size, fsType)
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	before := v.sum
	v.step("snapshot", func(ctx context.Context) (string, error) { return "", t.snapshot(ctx, "snap-"+fsType, v.name) })
	v.step("overwrite", v.write)

	copyOf := func(name string, sum [sha256.Size]byte, create func(ctx context.Context, name string) (map[string]string, error)) {
		c := &csiVolume{scenario: s, plugin: p, pod: podOf(name), name: name, id: "t0:" + name, fsType: fsType, sum: sum}
		c.step("create "+name, func(ctx context.Context) (_ string, err error) {
			c.context, err = create(ctx, name)
			return "", err
		})
		c.step("stage", c.stage)
		c.step("publish", c.publish)
		c.step("has the size", c.stats(larger-size/2))
		c.step("has the data", c.read)
		c.step("write", c.write)
		c.step("read", c.read)
		c.step("unpublish", c.unpublish)
		c.step("unstage", c.unstage)
		c.step("nothing is left", c.gone)
		c.delete()
	}
	copyOf("restored-"+fsType, before, func(ctx context.Context, name string) (map[string]string, error) {
		return t.restore(ctx, name, "snap-"+fsType, larger)
	})
	copyOf("clone-"+fsType, v.sum, func(ctx context.Context, name string) (map[string]string, error) {
		return t.clone(ctx, name, v.name, larger)
	})
	v.step("the origin is unchanged", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.step("delete the snapshot", func(ctx context.Context) (string, error) { return "", t.removeSnapshot(ctx, "snap-"+fsType) })
	v.delete()
}
