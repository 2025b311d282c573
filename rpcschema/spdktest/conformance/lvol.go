package conformance

import (
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// cluster is the default size of a cluster in blocks of 4 KiB.
const cluster = 1024

func testLvstore(s *suite) {
	base, _ := s.aio("base", 512)
	name := s.name("lvs")
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": name})
	s.fails(noDevice, "bdev_lvol_get_lvstores", P{"lvs_name": name})
	s.fails(noDevice, "bdev_lvol_get_lvstores", P{"uuid": unknownUUID})

	create := func(more P) P {
		p := P{"bdev_name": base, "lvs_name": name}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	s.fails(noDevice, "bdev_lvol_create_lvstore", create(P{"bdev_name": s.name("nobody")}))
	s.fails(invalidValue, "bdev_lvol_create_lvstore", create(P{"lvs_name": ""}))
	s.fails(invalidValue, "bdev_lvol_create_lvstore", create(P{"lvs_name": strings.Repeat("x", 64)}))
	s.fails(invalidValue, "bdev_lvol_create_lvstore", create(P{"clear_method": "nope"}))
	s.fails(invalidValue, "bdev_lvol_create_lvstore", create(P{"cluster_sz": 1024}))
	s.fails(invalidParams, "bdev_lvol_create_lvstore", create(P{"cluster_sz": 1 << 30})) // larger than the bdev
	assert.False(s, s.bdev(base).Claimed, "a failed call does not claim the bdev")

	uuid := s.text("bdev_lvol_create_lvstore", create(nil))
	store := s.lvstore(name)
	assert.Equal(s, uuid, store.UUID)
	assert.Equal(s, base, store.BaseBdev)
	assert.EqualValues(s, 127, store.TotalDataClusters, "one cluster of 128 holds the metadata")
	assert.EqualValues(s, 127, store.FreeClusters)
	assert.EqualValues(s, 4<<20, store.ClusterSize)
	assert.EqualValues(s, 4096, store.BlockSize)
	var list []spdkrpc.LvolStore
	s.get(&list, "bdev_lvol_get_lvstores", P{"uuid": uuid})
	assert.Equal(s, []spdkrpc.LvolStore{store}, list)
	s.get(&list, "bdev_lvol_get_lvstores", nil)
	assert.Contains(s, list, store)
	s.fails(invalidValue, "bdev_lvol_get_lvstores", P{"uuid": uuid, "lvs_name": name})
	s.fails(noDevice, "bdev_lvol_get_lvstores", P{"lvs_name": strings.ToUpper(name)})
	b := s.bdev(base)
	assert.True(s, b.Claimed)
	if !s.before("v24.05") {
		assert.EqualValues(s, "read_many_write_one", *b.ClaimType)
	}
	s.fails(notPermitted, "bdev_lvol_create_lvstore", create(nil))
	s.fails(notPermitted, "bdev_lvol_create_lvstore", create(P{"lvs_name": s.name("other")}))
	second := s.malloc("second", 16)
	s.fails(exists, "bdev_lvol_create_lvstore", create(P{"bdev_name": second}))

	small := s.name("small")
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": small})
	s.ok("bdev_lvol_create_lvstore", P{"bdev_name": second, "lvs_name": small, "cluster_sz": 1 << 20, "clear_method": "none"})
	assert.EqualValues(s, 15, s.lvstore(small).TotalDataClusters)
	s.fails(invalidParams, "bdev_lvol_rename_lvstore", P{"old_name": small, "new_name": name})
	s.fails(noEntry, "bdev_lvol_rename_lvstore", P{"old_name": s.name("nobody"), "new_name": "x"})
	s.ok("bdev_lvol_rename_lvstore", P{"old_name": small, "new_name": small})
	id := s.lvol(small, "v", 2, false)
	renamed := s.name("renamed")
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": renamed})
	s.ok("bdev_lvol_rename_lvstore", P{"old_name": small, "new_name": renamed})
	s.gone(small + "/v")
	assert.Equal(s, id, s.bdev(renamed+"/v").UUID, "aliases follow")
	assert.Equal(s, s.lvstore(renamed).UUID, *s.bdev(id).DriverSpecific.Lvol.LvolStoreUUID)

	s.ok("bdev_lvol_grow_lvstore", P{"lvs_name": name})
	assert.Equal(s, store, s.lvstore(name), "the lvstore could not grow, because its bdev had not grown")
	for _, method := range []string{"bdev_lvol_grow_lvstore", "bdev_lvol_delete_lvstore"} {
		s.fails(noDevice, method, P{"lvs_name": s.name("nobody")})
		s.fails(noDevice, method, P{"uuid": unknownUUID})
		s.fails(invalidValue, method, P{})
		s.fails(invalidValue, method, P{"uuid": uuid, "lvs_name": name})
	}

	s.ok("bdev_lvol_delete_lvstore", P{"lvs_name": renamed})
	s.gone(id)
	assert.False(s, s.bdev(second).Claimed)
	s.ok("bdev_lvol_delete_lvstore", P{"uuid": uuid})
	s.fails(noDevice, "bdev_lvol_delete_lvstore", P{"uuid": uuid})
	assert.False(s, s.bdev(base).Claimed, "the bdev is not claimed anymore")
}

func testLvol(s *suite) {
	store := s.store("lvs")
	record := s.lvstore(store)
	thick := s.lvol(store, "thick", 100, false)
	assert.EqualValues(s, 127-25, s.free(store))
	b := s.bdev(store + "/thick")
	assert.Equal(s, thick, b.UUID)
	assert.Equal(s, thick, b.Name, "the bdev's name is the volume's UUID")
	assert.Equal(s, []string{store + "/thick"}, b.Aliases)
	assert.EqualValues(s, 25*cluster, b.NumBlocks)
	assert.Equal(s, "Logical Volume", b.ProductName)
	d := b.DriverSpecific.Lvol
	require.NotNil(s, d)
	assert.Equal(s, record.UUID, *d.LvolStoreUUID)
	assert.Equal(s, record.BaseBdev, *d.BaseBdev)
	assert.False(s, *d.ThinProvision || *d.Snapshot || *d.Clone || *d.EsnapClone)
	s.allocates(thick, 25)
	assert.Equal(s, b, s.bdev(thick))

	thin := s.lvol(store, "thin", 100, true)
	assert.EqualValues(s, 127-25, s.free(store), "a thin volume owns no clusters")
	assert.True(s, *s.bdev(thin).DriverSpecific.Lvol.ThinProvision)
	s.allocates(thin, 0)

	byUUID := s.text("bdev_lvol_create", P{"uuid": record.UUID, "lvol_name": "c", "size_in_mib": 5, "thin_provision": true, "clear_method": "write_zeroes"})
	assert.EqualValues(s, 2*cluster, s.bdev(byUUID).NumBlocks, "the size is rounded up to whole clusters")

	var list []spdkrpc.LvolInfo
	s.get(&list, "bdev_lvol_get_lvols", P{"lvs_name": store})
	require.Len(s, list, 3)
	assert.Equal(s, store+"/thick", list[0].Alias)
	assert.Equal(s, thick, list[0].UUID)
	assert.Equal(s, spdkrpc.LvolStoreRef{Name: store, UUID: record.UUID}, list[0].Lvs)
	assert.False(s, list[0].IsThinProvisioned || list[0].IsSnapshot || list[0].IsClone || list[0].IsEsnapClone || list[0].IsDegraded)
	assert.True(s, list[1].IsThinProvisioned)
	s.get(&list, "bdev_lvol_get_lvols", P{"lvs_uuid": record.UUID})
	require.Len(s, list, 3)
	s.get(&list, "bdev_lvol_get_lvols", nil)
	assert.GreaterOrEqual(s, len(list), 3)
	s.fails(noDevice, "bdev_lvol_get_lvols", P{"lvs_name": s.name("nobody")})
	s.fails(invalidValue, "bdev_lvol_get_lvols", P{"lvs_name": store, "lvs_uuid": record.UUID})

	create := func(more P) P {
		p := P{"lvs_name": store, "lvol_name": "x", "size_in_mib": 4}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	s.fails(exists, "bdev_lvol_create", create(P{"lvol_name": "thick"}))
	s.fails(invalidParams, "bdev_lvol_create", create(P{"size_in_mib": 4000})) // not enough space
	s.fails(noDevice, "bdev_lvol_create", create(P{"lvs_name": s.name("nobody")}))
	s.fails(noDevice, "bdev_lvol_create", P{"uuid": unknownUUID, "lvol_name": "x", "size_in_mib": 4})
	s.fails(invalidValue, "bdev_lvol_create", create(P{"uuid": record.UUID}))
	s.fails(invalidValue, "bdev_lvol_create", P{"lvol_name": "x", "size_in_mib": 4})
	s.fails(invalidValue, "bdev_lvol_create", create(P{"lvol_name": ""}))
	s.fails(invalidValue, "bdev_lvol_create", create(P{"lvol_name": strings.Repeat("x", 64)}))
	s.fails(invalidValue, "bdev_lvol_create", create(P{"clear_method": "nope"}))
	s.gone(store + "/x")
	assert.EqualValues(s, 127-25, s.free(store), "failures take nothing")

	s.ok("bdev_lvol_set_read_only", P{"name": store + "/c"})
	s.ok("bdev_lvol_set_read_only", P{"name": store + "/c"})
	s.fails(invalidParams, "bdev_lvol_resize", P{"name": store + "/c", "size_in_mib": 100})
	s.fails(invalidParams, "bdev_lvol_snapshot", P{"lvol_name": store + "/c", "snapshot_name": "s"})

	other := s.malloc("other", 8)
	for method, more := range map[string]P{
		"bdev_lvol_resize": {"size_in_mib": 8}, "bdev_lvol_set_read_only": nil, "bdev_lvol_delete": nil, "bdev_lvol_inflate": nil,
		"bdev_lvol_decouple_parent": nil,
	} {
		for _, name := range []string{store + "/nobody", other, unknownUUID} {
			p := P{"name": name}
			for k, v := range more {
				p[k] = v
			}
			s.fails(noDevice, method, p)
		}
	}

	s.ok("bdev_lvol_delete", P{"name": store + "/thick"})
	s.gone(thick)
	s.fails(noDevice, "bdev_lvol_delete", P{"name": thick})
	s.ok("bdev_lvol_delete", P{"name": thin})
	s.ok("bdev_lvol_delete", P{"name": byUUID})
	assert.EqualValues(s, 127, s.free(store))
}

func testLvolSizes(s *suite) {
	store := s.store("lvs")
	thick, thin := s.lvol(store, "thick", 100, false), s.lvol(store, "thin", 100, true)
	expect := func(id string, clusters, allocated, free int) {
		s.Helper()
		b := s.bdev(id)
		assert.EqualValues(s, clusters*cluster, b.NumBlocks)
		s.allocates(id, allocated)
		assert.EqualValues(s, free, s.free(store))
	}
	resize := func(id string, mib int) { s.Helper(); s.ok("bdev_lvol_resize", P{"name": id, "size_in_mib": mib}) }
	resize(thick, 200)
	expect(thick, 50, 50, 77)
	resize(thick, 100)
	expect(thick, 25, 25, 102)
	resize(thick, 100)
	resize(store+"/thick", 101)
	expect(thick, 26, 26, 101)
	s.fails(invalidParams, "bdev_lvol_resize", P{"name": thick, "size_in_mib": 4000})
	expect(thick, 26, 26, 101)
	resize(thin, 4000)
	expect(thin, 1000, 0, 101)
	resize(thin, 100)
	expect(thin, 25, 0, 101)

	zero := s.lvol(store, "zero", 0, false)
	expect(zero, 0, 0, 101)
	resize(zero, 8)
	expect(zero, 2, 2, 99)
	huge := s.lvol(store, "huge", 1_000_000, true)
	expect(huge, 250_000, 0, 99)
	for _, id := range []string{zero, huge, thin} {
		s.ok("bdev_lvol_delete", P{"name": id})
	}

	if !s.before("v24.05") && !s.env.Validates {
		s.fails(internalError, "bdev_lvol_create", P{"lvs_name": store, "lvol_name": "b", "size": 4 << 20})
		s.fails(internalError, "bdev_lvol_resize", P{"name": thick, "size": 4 << 20})
		return
	}
	byBytes := s.text("bdev_lvol_create", P{"lvs_name": store, "lvol_name": "b", "size": 5 << 20})
	expect(byBytes, 2, 2, 99)
	s.ok("bdev_lvol_resize", P{"name": byBytes, "size": 9 << 20})
	expect(byBytes, 3, 3, 98)
	s.fails(internalError, "bdev_lvol_create", P{"lvs_name": store, "lvol_name": "d", "size": 4 << 20, "size_in_mib": 4})
	s.fails(internalError, "bdev_lvol_resize", P{"name": thick, "size": 4 << 20, "size_in_mib": 4})
}

func testLvolNames(s *suite) {
	store := s.store("lvs")
	a := s.lvol(store, "a", 4, true)
	upper := s.lvol(store, "A", 4, true)
	assert.NotEqual(s, a, upper, "names are case-sensitive")
	long := strings.Repeat("n", 63)
	assert.Equal(s, s.lvol(store, long, 4, true), s.bdev(store+"/"+long).UUID)
	odd := s.lvol(store, "o/dd ü", 4, true)
	assert.Equal(s, odd, s.bdev(store+"/o/dd ü").UUID)

	rename := func(from, to string) P { return P{"old_name": from, "new_name": to} }
	s.fails(invalidParams, "bdev_lvol_rename", rename(a, "A"))
	s.fails(noDevice, "bdev_lvol_rename", rename(store+"/nobody", "b"))
	s.fails(invalidParams, "bdev_lvol_rename", rename(a, "a"))
	s.ok("bdev_lvol_rename", rename(store+"/a", "b"))
	s.gone(store + "/a")
	assert.Equal(s, a, s.bdev(store+"/b").UUID)
	s.ok("bdev_lvol_rename", rename(a, "a"))
	assert.Equal(s, []string{store + "/a"}, s.bdev(a).Aliases)
	again := s.lvol(store, "b", 4, true)
	assert.NotEqual(s, a, again, "the old name can be used again")
}
