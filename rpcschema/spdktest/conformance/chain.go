package conformance

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A link describes a volume's place in the chain of snapshots and clones.
type link struct {
	thin, snapshot bool
	base           string
	clones         []string
	allocated      int
}

func (s *suite) link(name string) link {
	s.Helper()
	d := s.bdev(name).DriverSpecific.Lvol
	require.NotNil(s, d)
	l := link{thin: *d.ThinProvision, snapshot: *d.Snapshot, clones: d.Clones}
	if d.NumAllocatedClusters != nil {
		l.allocated = int(*d.NumAllocatedClusters)
	}
	if d.BaseSnapshot != nil {
		l.base = *d.BaseSnapshot
	}
	assert.Equal(s, *d.Clone, l.base != "")
	return l
}

// at checks a volume's place in the chain. SPDK has reported the number of allocated clusters since
// v24.05.
func (s *suite) at(name string, want link, why ...any) {
	s.Helper()
	if s.before("v24.05") {
		want.allocated = 0
	}
	assert.Equal(s, want, s.link(name), why...)
}

// allocates checks the number of clusters owned by the volume itself.
func (s *suite) allocates(name string, want int, why ...any) {
	s.Helper()
	if !s.before("v24.05") {
		assert.Equal(s, want, s.link(name).allocated, why...)
	}
}

func testSnapshots(s *suite) {
	store := s.store("lvs")
	in := func(name string) string { return store + "/" + name }
	snapshot := func(source, name string) string {
		s.Helper()
		return s.text("bdev_lvol_snapshot", P{"lvol_name": in(source), "snapshot_name": name})
	}
	a := s.lvol(store, "a", 100, false)
	s.lvol(store, "b", 4, true)
	for _, name := range []string{"a", "b", "", strings.Repeat("s", 64)} {
		s.fails(invalidParams, "bdev_lvol_snapshot", P{"lvol_name": in("a"), "snapshot_name": name})
	}
	s.fails(noDevice, "bdev_lvol_snapshot", P{"lvol_name": in("nobody"), "snapshot_name": "s"})

	s1 := snapshot("a", "s1")
	s.at(a, link{thin: true, base: "s1"}, "the volume is now a thin clone")
	s.at(s1, link{snapshot: true, clones: []string{"a"}, allocated: 25}, "the snapshot owns the volume's former clusters")
	assert.Equal(s, s.bdev(a).NumBlocks, s.bdev(s1).NumBlocks)
	assert.False(s, s.bdev(s1).SupportedIOTypes.Write)
	assert.EqualValues(s, 127-25, s.free(store))
	s.fails(invalidParams, "bdev_lvol_snapshot", P{"lvol_name": in("s1"), "snapshot_name": "ss"})
	s.fails(invalidParams, "bdev_lvol_resize", P{"name": s1, "size_in_mib": 200})
	s.ok("bdev_lvol_set_read_only", P{"name": s1})

	snapshot("a", "s2")
	s.at(a, link{thin: true, base: "s2"})
	s.at(in("s2"), link{thin: true, snapshot: true, base: "s1", clones: []string{"a"}})
	assert.Equal(s, []string{"s2"}, s.link(s1).clones)

	clone := func(source, name string) P { return P{"snapshot_name": in(source), "clone_name": name} }
	s.fails(invalidParams, "bdev_lvol_clone", clone("a", "k")) // not a snapshot
	s.fails(noDevice, "bdev_lvol_clone", clone("nobody", "k"))
	s.fails(invalidParams, "bdev_lvol_clone", clone("s1", "a"))
	s.fails(invalidParams, "bdev_lvol_clone", clone("s1", ""))
	if !s.env.Validates {
		code := internalError
		if s.before("v26.05") {
			code = invalidParams
		}
		s.fails(code, "bdev_lvol_clone", P{"snapshot_name": in("s1")})
	}
	k1 := s.text("bdev_lvol_clone", clone("s1", "k1"))
	s.at(k1, link{thin: true, base: "s1"})
	assert.ElementsMatch(s, []string{"s2", "k1"}, s.link(s1).clones)
	assert.EqualValues(s, 127-25, s.free(store), "a new clone owns no clusters")
	s.ok("bdev_lvol_resize", P{"name": k1, "size_in_mib": 200})
	s.ok("bdev_lvol_resize", P{"name": k1, "size_in_mib": 50})
	assert.EqualValues(s, 13*cluster, s.bdev(k1).NumBlocks, "a clone may be smaller than its snapshot")

	s.fails(internalError, "bdev_lvol_delete", P{"name": s1}) // the snapshot has two clones
	assert.Len(s, s.link(s1).clones, 2)
	s.ok("bdev_lvol_delete", P{"name": k1})
	assert.Equal(s, []string{"s2"}, s.link(s1).clones)
	s.ok("bdev_lvol_delete", P{"name": s1})
	s.at(in("s2"), link{thin: true, snapshot: true, clones: []string{"a"}, allocated: 25}, "the clone owns the deleted snapshot's clusters")
	s.ok("bdev_lvol_delete", P{"name": in("s2")})
	s.at(a, link{thin: true, allocated: 25})

	snapshot("a", "s3")
	s.ok("bdev_lvol_delete", P{"name": a})
	s.allocates(in("s3"), 25, "a snapshot still exists after its volume is deleted")
	assert.Empty(s, s.link(in("s3")).clones)
	restored := s.text("bdev_lvol_clone", clone("s3", "a"))
	assert.NotEqual(s, a, restored)
	s.ok("bdev_lvol_delete", P{"name": restored})
	s.ok("bdev_lvol_delete", P{"name": in("s3")})
	s.ok("bdev_lvol_delete", P{"name": in("b")})
	assert.EqualValues(s, 127, s.free(store))

	// A volume that has been made read-only can be cloned like a snapshot.
	s.lvol(store, "ro", 8, true)
	s.ok("bdev_lvol_set_read_only", P{"name": in("ro")})
	s.ok("bdev_lvol_clone", clone("ro", "k"))
	assert.Equal(s, []string{"k"}, s.link(in("ro")).clones)
	assert.True(s, s.link(in("ro")).snapshot)
}

func testInflate(s *suite) {
	store := s.store("lvs")
	in := func(name string) string { return store + "/" + name }
	s.lvol(store, "thin", 100, true)
	s.ok("bdev_lvol_inflate", P{"name": in("thin")})
	s.at(in("thin"), link{allocated: 25})
	s.ok("bdev_lvol_inflate", P{"name": in("thin")})
	// the volume has no parent
	s.fails(invalidParams, "bdev_lvol_decouple_parent", P{"name": in("thin")})

	s.ok("bdev_lvol_snapshot", P{"lvol_name": in("thin"), "snapshot_name": "s1"})
	s.ok("bdev_lvol_snapshot", P{"lvol_name": in("thin"), "snapshot_name": "s2"})
	s.ok("bdev_lvol_clone", P{"snapshot_name": in("s2"), "clone_name": "k"})
	s.ok("bdev_lvol_decouple_parent", P{"name": in("k")})
	s.at(in("k"), link{thin: true, base: "s1"}, "clusters of the grandparent remain shared")
	s.ok("bdev_lvol_decouple_parent", P{"name": in("k")})
	s.at(in("k"), link{thin: true, allocated: 25})
	assert.EqualValues(s, 127-50, s.free(store))
	s.fails(invalidParams, "bdev_lvol_decouple_parent", P{"name": in("k")})
	s.ok("bdev_lvol_clone", P{"snapshot_name": in("s1"), "clone_name": "k2"})
	s.ok("bdev_lvol_inflate", P{"name": in("k2")})
	s.at(in("k2"), link{allocated: 25})
	assert.Equal(s, []string{"s2"}, s.link(in("s1")).clones)

	s.lvol(store, "big", 400, true)
	s.fails(invalidParams, "bdev_lvol_inflate", P{"name": in("big")}) // not enough space
	s.at(in("big"), link{thin: true})
}

func testSetParent(s *suite) {
	if s.before("v24.05") {
		s.fails(noMethod, "bdev_lvol_set_parent", P{"lvol_name": "a", "parent_name": "b"})
		return
	}
	store := s.store("lvs")
	in := func(name string) string { return store + "/" + name }
	s.lvol(store, "a", 8, true)
	s.lvol(store, "other", 12, true)
	s.lvol(store, "thick", 8, false)
	s.ok("bdev_lvol_snapshot", P{"lvol_name": in("a"), "snapshot_name": "s1"})
	s.ok("bdev_lvol_snapshot", P{"lvol_name": in("a"), "snapshot_name": "s2"})
	s.ok("bdev_lvol_clone", P{"snapshot_name": in("s1"), "clone_name": "k"})
	set := func(lvol, parent string) P { return P{"lvol_name": in(lvol), "parent_name": in(parent)} }
	s.ok("bdev_lvol_set_parent", set("k", "s2"))
	s.at(in("k"), link{thin: true, base: "s2"})
	assert.ElementsMatch(s, []string{"a", "k"}, s.link(in("s2")).clones)
	s.fails(invalidParams, "bdev_lvol_set_parent", set("k", "s2")) // s2 is already its parent
	// the new parent is not a snapshot
	s.fails(invalidParams, "bdev_lvol_set_parent", set("k", "a"))
	s.fails(invalidParams, "bdev_lvol_set_parent", set("other", "s2")) // the sizes differ
	s.fails(invalidParams, "bdev_lvol_set_parent", set("thick", "s2"))
	s.fails(invalidParams, "bdev_lvol_set_parent", set("a", "a"))
	s.fails(noDevice, "bdev_lvol_set_parent", set("nobody", "s2"))
	s.fails(noDevice, "bdev_lvol_set_parent", set("k", "nobody"))
}

func testExternal(s *suite) {
	store, outside := s.store("lvs"), s.malloc("outside", 16)
	in := func(name string) string { return store + "/" + name }
	// Delete clones before their external base bdev. Otherwise, SPDK would never respond to the
	// call that deletes the base bdev.
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": store})
	clone := func(bdev, name string) P { return P{"bdev": bdev, "lvs_name": store, "clone_name": name} }
	uuid := s.bdev(outside).UUID
	first := s.text("bdev_lvol_clone_bdev", clone(uuid, "x1"))
	d := s.bdev(first).DriverSpecific.Lvol
	assert.True(s, *d.EsnapClone && *d.ThinProvision && !*d.Clone)
	assert.Equal(s, uuid, *d.ExternalSnapshotName)
	assert.EqualValues(s, 4*cluster, s.bdev(first).NumBlocks)
	b := s.bdev(outside)
	assert.True(s, b.Claimed)
	if !s.before("v24.05") {
		assert.EqualValues(s, "read_many_write_none", *b.ClaimType)
	}
	s.ok("bdev_lvol_clone_bdev", clone(uuid, "x2"))
	var list []spdkrpc.LvolInfo
	s.get(&list, "bdev_lvol_get_lvols", P{"lvs_name": store})
	require.Len(s, list, 2)
	assert.True(s, list[0].IsEsnapClone && !list[0].IsClone && !list[0].IsDegraded)

	s.fails(invalidParams, "bdev_lvol_clone_bdev", clone(uuid, "x1"))
	s.fails(invalidParams, "bdev_lvol_clone_bdev", clone(unknownUUID, "x3"))
	s.fails(invalidParams, "bdev_lvol_clone_bdev", P{"bdev": uuid, "lvs_name": s.name("nobody"), "clone_name": "x3"})
	// an external clone must be in another lvstore than its parent
	s.fails(invalidParams, "bdev_lvol_clone_bdev", clone(first, "x3"))

	s.ok("bdev_lvol_delete", P{"name": in("x2")})
	assert.True(s, s.bdev(outside).Claimed)
	s.ok("bdev_lvol_inflate", P{"name": first})
	d = s.bdev(first).DriverSpecific.Lvol
	assert.False(s, *d.EsnapClone || *d.ThinProvision)
	s.allocates(first, 4)
	s.ok("bdev_lvol_delete", P{"name": first})
}

// testReload removes the bdev of an lvstore and adds it again. The lvstore and its volumes must
// reappear with the same names and UUIDs.
func testReload(s *suite) {
	base, path := s.aio("base", 512)
	store := s.name("lvs")
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": store})
	s.ok("bdev_lvol_create_lvstore", P{"bdev_name": base, "lvs_name": store})
	v := s.lvol(store, "v", 100, false)
	s1 := s.text("bdev_lvol_snapshot", P{"lvol_name": v, "snapshot_name": "s"})
	k := s.text("bdev_lvol_clone", P{"snapshot_name": s1, "clone_name": "k"})
	s.ok("bdev_lvol_rename", P{"old_name": k, "new_name": "k2"})
	s.ok("bdev_lvol_set_read_only", P{"name": k})
	before := s.lvstore(store)

	s.ok("bdev_aio_delete", P{"name": base})
	s.fails(noDevice, "bdev_lvol_get_lvstores", P{"lvs_name": store})
	for _, id := range []string{v, s1, k} {
		s.gone(id)
	}
	s.fails(noDevice, "bdev_lvol_create", P{"lvs_name": store, "lvol_name": "x", "size_in_mib": 4})

	again := s.name("again")
	s.undo("bdev_aio_delete", P{"name": again})
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": store})
	s.ok("bdev_aio_create", P{"name": again, "filename": path, "block_size": 4096})
	after := s.lvstore(store)
	assert.Equal(s, again, after.BaseBdev)
	after.BaseBdev = before.BaseBdev
	assert.Equal(s, before, after)
	s.at(v, link{thin: true, base: "s"})
	s.at(s1, link{snapshot: true, clones: s.link(s1).clones, allocated: 25})
	assert.ElementsMatch(s, []string{"v", "k2"}, s.link(s1).clones)
	assert.Equal(s, k, s.bdev(store+"/k2").UUID)
	assert.False(s, s.bdev(k).SupportedIOTypes.Write)
	s.fails(exists, "bdev_lvol_create", P{"lvs_name": store, "lvol_name": "v", "size_in_mib": 4})
}
