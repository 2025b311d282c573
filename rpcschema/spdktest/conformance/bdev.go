package conformance

import (
	"os"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func testBdevs(s *suite) {
	s.gone(s.name("nobody"))
	s.gone("")
	s.gone(unknownUUID)
	s.fails(timedOut, "bdev_get_bdevs", P{"name": s.name("nobody"), "timeout": 50})
	s.fails(noDevice, "bdev_get_bdevs", P{"name": s.name("nobody"), "timeout": 0})
	s.ok("bdev_wait_for_examine", nil)
	s.fails(invalidValue, "bdev_examine", P{"name": "x"}) // all bdevs are examined automatically

	m := s.malloc("m", 8)
	b := s.bdev(m)
	assert.Equal(s, "Malloc disk", b.ProductName)
	assert.EqualValues(s, 2048, b.NumBlocks)
	assert.EqualValues(s, 4096, b.BlockSize)
	assert.False(s, b.Claimed)
	assert.Nil(s, b.ClaimType)
	assert.Equal(s, []string{b.UUID}, b.Aliases, "the UUID is an alias")
	assert.Equal(s, b, s.bdev(b.UUID), "the bdev is also found by its UUID")
	s.gone(strings.ToUpper(m))
	s.gone(strings.ToUpper(b.UUID))
	assert.True(s, b.SupportedIOTypes.Unmap && b.SupportedIOTypes.WriteZeroes && b.SupportedIOTypes.Flush)

	s.fails(exists, "bdev_malloc_create", P{"name": m, "num_blocks": 2048, "block_size": 512})
	s.fails(exists, "bdev_malloc_create", P{"name": s.name("m2"), "num_blocks": 2048, "block_size": 512, "uuid": b.UUID})
	s.fails(invalidValue, "bdev_malloc_create", P{"name": s.name("m2"), "num_blocks": 0, "block_size": 512})
	s.fails(invalidValue, "bdev_malloc_create", P{"name": s.name("m2"), "num_blocks": 8, "block_size": 100})
	s.fails(invalidValue, "bdev_malloc_create", P{"name": "", "num_blocks": 8, "block_size": 512})
	s.fails(noMemory, "bdev_malloc_create", P{"name": s.name("m2"), "num_blocks": 8, "block_size": 0})
	s.fails(noMemory, "bdev_malloc_create", P{"name": s.name("m2"), "num_blocks": uint64(1) << 62, "block_size": 4096})
	s.gone(s.name("m2"))

	const own = "AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE"
	s.undo("bdev_malloc_delete", P{"name": s.name("m3")})
	s.ok("bdev_malloc_create", P{"name": s.name("m3"), "num_blocks": 2048, "block_size": 512, "uuid": own})
	assert.Equal(s, strings.ToLower(own), s.bdev(s.name("m3")).UUID, "UUIDs are reported in lower case")

	odd := s.name(" odd/ü\"\\")
	s.undo("bdev_malloc_delete", P{"name": odd})
	assert.Equal(s, odd, s.text("bdev_malloc_create", P{"name": odd, "num_blocks": 2048, "block_size": 512}))
	assert.Equal(s, odd, s.bdev(odd).Name)

	unnamed := s.text("bdev_malloc_create", P{"num_blocks": 2048, "block_size": 512})
	assert.Regexp(s, `^Malloc\d+$`, unnamed)
	s.ok("bdev_malloc_delete", P{"name": unnamed})
	s.gone(unnamed)

	s.fails(noDevice, "bdev_malloc_delete", P{"name": s.name("nobody")})
	s.fails(noDevice, "bdev_null_delete", P{"name": m}) // a bdev of a different kind
	s.fails(noDevice, "bdev_aio_delete", P{"name": m})

	n := s.name("null")
	s.undo("bdev_null_delete", P{"name": n})
	assert.Equal(s, n, s.text("bdev_null_create", P{"name": n, "num_blocks": 262144, "block_size": 4096}))
	s.fails(exists, "bdev_null_create", P{"name": n, "num_blocks": 262144, "block_size": 4096})
	s.ok("bdev_null_resize", P{"name": n, "new_size": 2048})
	assert.EqualValues(s, 524288, s.bdev(n).NumBlocks)
	s.fails(noDevice, "bdev_null_resize", P{"name": s.name("nobody"), "new_size": 1})
	s.ok("bdev_null_delete", P{"name": n})
	s.gone(n)
}

func testAIO(s *suite) {
	name, path := s.aio("aio", 64)
	b := s.bdev(name)
	assert.Equal(s, "AIO disk", b.ProductName)
	assert.EqualValues(s, 16384, b.NumBlocks)
	require.NotNil(s, b.DriverSpecific.AIO)
	assert.Equal(s, path, b.DriverSpecific.AIO.Filename)
	assert.False(s, b.DriverSpecific.AIO.ReadOnly)

	create := func(file string, block any) P {
		p := P{"name": s.name("aiox"), "filename": file}
		if block != nil {
			p["block_size"] = block
		}
		return p
	}
	s.fails(exists, "bdev_aio_create", P{"name": name, "filename": path, "block_size": 4096})
	s.fails(noEntry, "bdev_aio_create", create(path+".missing", 4096))
	s.fails(isDirectory, "bdev_aio_create", create(s.env.Dir, 4096))
	unused := s.file(64 << 20) // the proxy refuses to attach a file twice
	for _, block := range []any{nil, 0, 256, 1000} {
		s.fails(invalidValue, "bdev_aio_create", create(unused, block))
	}
	s.fails(invalidValue, "bdev_aio_create", create(s.file(5000), 4096))
	s.fails(invalidValue, "bdev_aio_create", P{"name": "", "filename": path, "block_size": 4096})
	s.gone(s.name("aiox"))

	second := s.name("aio2")
	s.undo("bdev_aio_delete", P{"name": second})
	s.ok("bdev_aio_create", P{"name": second, "filename": path, "block_size": 512, "readonly": true})
	assert.EqualValues(s, 131072, s.bdev(second).NumBlocks, "several bdevs may use the same file")
	assert.True(s, s.bdev(second).DriverSpecific.AIO.ReadOnly)

	assert.False(s, b.SupportedIOTypes.Unmap, "deleting a volume on this bdev with unmap does not clear its data")
	if !s.before("v24.05") {
		third := s.name("aio3")
		s.undo("bdev_aio_delete", P{"name": third})
		s.ok("bdev_aio_create", P{"name": third, "filename": s.file(64 << 20), "block_size": 4096, "fallocate": true})
		assert.True(s, s.bdev(third).SupportedIOTypes.Unmap)
	}

	s.ok("bdev_aio_rescan", P{"name": name})
	require.NoError(s, os.Truncate(path, 128<<20))
	assert.EqualValues(s, 16384, s.bdev(name).NumBlocks, "the bdev does not notice by itself that its file has grown")
	s.ok("bdev_aio_rescan", P{"name": name})
	assert.EqualValues(s, 32768, s.bdev(name).NumBlocks)
	require.NoError(s, os.Truncate(path, 64<<20))
	s.fails(busy, "bdev_aio_rescan", P{"name": name})
	assert.EqualValues(s, 32768, s.bdev(name).NumBlocks, "shrinking is refused")
	s.fails(noDevice, "bdev_aio_rescan", P{"name": s.name("nobody")})

	s.ok("bdev_aio_delete", P{"name": name})
	s.fails(noDevice, "bdev_aio_delete", P{"name": name})
	s.gone(name)
	s.bdev(second)
}

// testStacked checks that a passthru bdev waits for its base bdev, claims it, and is removed
// together with it.
func testStacked(s *suite) {
	// SPDK keeps a failed request, and creates the bdev when a base bdev with the requested name
	// appears. Therefore, no other test may use this name.
	base, top := s.malloc("stackbase", 8), s.name("pt")
	s.undo("bdev_passthru_delete", P{"name": top})
	assert.Equal(s, top, s.text("bdev_passthru_create", P{"name": top, "base_bdev_name": base}))
	b := s.bdev(top)
	assert.Equal(s, s.bdev(base).NumBlocks, b.NumBlocks)
	assert.Equal(s, &spdkrpc.BdevDriverPassthru{Name: top, BaseBdevName: base}, b.DriverSpecific.Passthru)
	below := s.bdev(base)
	assert.True(s, below.Claimed)
	if !s.before("v24.05") {
		assert.EqualValues(s, "exclusive_write", *below.ClaimType)
	}
	s.fails(exists, "bdev_passthru_create", P{"name": top, "base_bdev_name": base})
	s.fails(notPermitted, "bdev_passthru_create", P{"name": s.name("pt2"), "base_bdev_name": base})
	s.fails(notPermitted, "bdev_lvol_create_lvstore", P{"bdev_name": base, "lvs_name": s.name("lvs")})
	s.gone(s.name("pt2"))
	s.fails(noDevice, "bdev_passthru_delete", P{"name": base})

	s.ok("bdev_malloc_delete", P{"name": base})
	s.gone(top)
	s.malloc("stackbase", 8)
	s.ok("bdev_wait_for_examine", nil)
	s.bdev(top)
	s.ok("bdev_passthru_delete", P{"name": top})
	s.gone(top)
	s.ok("bdev_malloc_delete", P{"name": base})
	s.malloc("stackbase", 8)
	s.ok("bdev_wait_for_examine", nil)
	s.bdev(s.name("pt2"))
	s.ok("bdev_passthru_delete", P{"name": s.name("pt2")})
	assert.False(s, s.bdev(base).Claimed)

	late, waiting := s.name("late"), s.name("waiting")
	s.undo("bdev_passthru_delete", P{"name": waiting})
	assert.Equal(s, waiting, s.text("bdev_passthru_create", P{"name": waiting, "base_bdev_name": late}))
	s.gone(waiting)
	s.malloc("late", 8)
	s.ok("bdev_wait_for_examine", nil)
	s.bdev(waiting)
	s.ok("bdev_passthru_delete", P{"name": waiting})
}

func testQoS(s *suite) {
	a, b := s.malloc("a", 8), s.malloc("b", 8)
	limits := func(name string) spdkrpc.BdevRateLimits { return s.bdev(name).AssignedRateLimits }
	assert.Zero(s, limits(a))
	s.ok("bdev_set_qos_limit", P{"name": a, "rw_ios_per_sec": 0})
	s.ok("bdev_set_qos_limit", P{"name": a, "rw_ios_per_sec": 1500})
	assert.Equal(s, spdkrpc.BdevRateLimits{RWIOsPerSec: 2000}, limits(a), "the limit is rounded up to a multiple of 1,000")
	s.ok("bdev_set_qos_limit", P{"name": b, "rw_mbytes_per_sec": 100, "r_mbytes_per_sec": 50, "w_mbytes_per_sec": 60})
	assert.Equal(s, spdkrpc.BdevRateLimits{RWMbytesPerSec: 100, RMbytesPerSec: 50, WMbytesPerSec: 60}, limits(b))
	if s.before("v25.09") {
		s.ok("bdev_set_qos_limit", P{"name": a, "r_mbytes_per_sec": 7})
		assert.Equal(s, spdkrpc.BdevRateLimits{RWIOsPerSec: 2000, RMbytesPerSec: 7}, limits(a), "others stay")
		s.ok("bdev_set_qos_limit", P{"name": a, "rw_ios_per_sec": 0, "r_mbytes_per_sec": 0})
		assert.Zero(s, limits(a))
	} else {
		// If a bdev has no I/O, its limiter always counts as being started, so SPDK refuses further
		// changes.
		s.fails(invalidParams, "bdev_set_qos_limit", P{"name": a, "r_mbytes_per_sec": 7})
		assert.Equal(s, spdkrpc.BdevRateLimits{RWIOsPerSec: 2000}, limits(a))
	}
	s.fails(invalidValue, "bdev_set_qos_limit", P{"name": a})
	s.fails(noDevice, "bdev_set_qos_limit", P{"name": s.name("nobody"), "rw_ios_per_sec": 1000})

	// If a user of the bdev can do I/O, limits can be changed at any time.
	store := s.store("q")
	s.lvol(store, "v", 8, true)
	s.transport()
	nqn := s.subsystem("q")
	s.ok("nvmf_subsystem_add_ns", P{"nqn": nqn, "namespace": P{"bdev_name": store + "/v"}})
	for _, iops := range []uint64{10000, 20000, 0, 5000} {
		s.ok("bdev_set_qos_limit", P{"name": store + "/v", "rw_ios_per_sec": iops})
		assert.Equal(s, spdkrpc.BdevRateLimits{RWIOsPerSec: iops}, limits(store+"/v"))
	}

	named := func(names ...string) P {
		if s.before("v26.01") {
			return P{"name": names[0]}
		}
		return P{"names": names}
	}
	var stat spdkrpc.BdevIOStat
	s.get(&stat, "bdev_get_iostat", named(a))
	require.Len(s, stat.Bdevs, 1)
	assert.Equal(s, a, stat.Bdevs[0].Name)
	assert.NotZero(s, stat.TickRate)
	s.ok("bdev_get_iostat", nil)
	s.fails(noDevice, "bdev_get_iostat", named(s.name("nobody")))
	s.fails(invalidValue, "bdev_get_iostat", P{"per_channel": true})
	s.ok("bdev_set_qd_sampling_period", P{"name": a, "period": 1000})
	s.get(&stat, "bdev_get_iostat", named(a))
	require.NotNil(s, stat.Bdevs[0].QueueDepthPollingPeriod)
	assert.EqualValues(s, 1000, *stat.Bdevs[0].QueueDepthPollingPeriod)
	s.ok("bdev_set_qd_sampling_period", P{"name": a, "period": 0})
	s.ok("bdev_reset_iostat", P{"name": a})
	s.fails(noDevice, "bdev_reset_iostat", P{"name": s.name("nobody")})
}
