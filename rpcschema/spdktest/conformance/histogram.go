package conformance

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// enableWhole returns parameters that make a histogram count the I/O on all channels.
func (s *suite) enableWhole(bdev string) P {
	p := P{"name": bdev, "enable": true}
	if !s.before("v25.05") {
		p["min_nsec"], p["max_nsec"] = 0, uint64(math.MaxUint64)
	}
	return p
}

// histogram returns a bdev's histogram and the number of I/Os that it has counted.
func (s *suite) histogram(bdev string) (h spdkrpc.BdevHistogram, sum uint64) {
	s.Helper()
	s.get(&h, "bdev_get_histogram", P{"name": bdev})
	raw, err := base64.StdEncoding.DecodeString(h.Histogram)
	require.NoError(s, err)
	first, last, granularity := uint32(0), uint32(57), h.BucketShift
	if !s.before("v25.05") {
		first, last, granularity = *h.MinRange, *h.MaxRange, h.Granularity
	}
	require.Len(s, raw, int(last-first+1)<<*granularity*8, "each range has a number of buckets")
	for i := 0; i < len(raw); i += 8 {
		sum += binary.NativeEndian.Uint64(raw[i:])
	}
	assert.Positive(s, h.TSCRate)
	return h, sum
}

func (s *suite) counted(bdev string) uint64 {
	s.Helper()
	_, sum := s.histogram(bdev)
	return sum
}

func testHistograms(s *suite) {
	const enable, get = "bdev_enable_histogram", "bdev_get_histogram"
	s.fails(noDevice, get, P{"name": s.name("nobody")})
	s.fails(noDevice, enable, P{"name": s.name("nobody"), "enable": true})
	m := s.malloc("m", 8)
	s.fails(internalError, get, nil)
	s.fails(internalError, enable, P{"name": m})
	if s.before("v25.05") {
		s.fails(internalError, enable, P{"name": m, "enable": true, "granularity": 3})
		h, sum := s.histogram(m)
		assert.Zero(s, sum, "an empty histogram although it is not enabled, because there is no channel")
		assert.EqualValues(s, 7, *h.BucketShift)
	} else {
		s.fails(noMemory, get, P{"name": m})
	}
	s.ok(enable, P{"name": m, "enable": true})
	h, sum := s.histogram(m)
	assert.Zero(s, sum)
	if !s.before("v25.05") {
		assert.EqualValues(s, 7, *h.Granularity)
		assert.Positive(s, *h.MinRange, "all latencies below 1 us fall into the same bucket")
		assert.Less(s, *h.MaxRange, uint32(57), "all long latencies fall into the same bucket")
		s.ok(enable, P{"name": m, "enable": true, "granularity": 3, "min_nsec": 0, "max_nsec": 1000000})
		h, _ = s.histogram(m)
		assert.EqualValues(s, 3, *h.Granularity, "enabling the histogram again changes its options")
		s.ok(enable, P{"name": m, "enable": true, "min_nsec": 5, "max_nsec": 5})
		s.fails(noMemory, get, P{"name": m})
	}
	s.ok(enable, P{"name": m, "enable": false})
	s.counted(m)
	s.group("channels", testHistogramChannels)
}

// storeOn creates an lvstore, which opens a channel of its bdev.
func (s *suite) storeOn(bdev string) (store string) {
	s.Helper()
	store = bdev + "lvs"
	s.undo("bdev_lvol_delete_lvstore", P{"lvs_name": store})
	s.ok("bdev_lvol_create_lvstore", P{"bdev_name": bdev, "lvs_name": store})
	return store
}

// testHistogramChannels checks which channels a histogram counts. To cause I/O, it creates volumes,
// because SPDK then writes to the lvstore's bdev.
func testHistogramChannels(s *suite) {
	const enable, get = "bdev_enable_histogram", "bdev_get_histogram"
	opened, _ := s.aio("opened", 64) // opened before the histogram is enabled
	store := s.storeOn(opened)
	if s.before("v25.05") {
		s.fails(internalError, get, P{"name": opened})
	} else {
		s.fails(noMemory, get, P{"name": opened})
		s.fails(noMemory, enable, P{"name": opened, "enable": true, "min_nsec": 5, "max_nsec": 5})
		s.fails(noMemory, get, P{"name": opened})
	}
	s.ok(enable, P{"name": opened, "enable": true})
	s.lvol(store, "a", 4, true)
	counted := s.counted(opened)
	assert.Positive(s, counted)
	s.ok(enable, P{"name": opened, "enable": true})
	assert.Equal(s, counted, s.counted(opened), "enabling the histogram again keeps its counts")
	if !s.before("v26.05") {
		var b spdkrpc.BdevHistogramBorders
		s.get(&b, "bdev_get_histogram_borders", P{"name": opened, "borders": []uint64{60000000, 1000000000}})
		assert.Equal(s, []uint64{counted, 0, 0}, b.BordersCount, "each number is the sum up to its border, or 0 after the first border beyond the range")
	}
	s.ok(enable, P{"name": opened, "enable": false})
	s.fails(internalError, get, P{"name": opened})

	late, _ := s.aio("late", 64)
	s.ok(enable, P{"name": late, "enable": true})
	s.lvol(s.storeOn(late), "a", 4, true)
	if s.before("v25.05") {
		assert.Positive(s, s.counted(late))
	} else {
		assert.Zero(s, s.counted(late), "a channel that opens later counts the full range, which does not fit the others")
	}

	whole, _ := s.aio("whole", 64)
	s.ok(enable, s.enableWhole(whole))
	store = s.storeOn(whole)
	s.lvol(store, "a", 4, true)
	h, counted := s.histogram(whole)
	assert.Positive(s, counted)
	assert.Len(s, h.Histogram, 79192)
	if !s.before("v26.05") {
		var b spdkrpc.BdevHistogramBorders
		s.get(&b, "bdev_get_histogram_borders", P{"name": whole, "borders": []uint64{60000000, 1000000000}})
		assert.Equal(s, []uint64{counted, counted, counted}, b.BordersCount)
	}
	var saved []string
	for _, c := range s.config("bdev") {
		if c.Method == enable {
			text, err := json.Marshal(c.Params)
			require.NoError(s, err)
			saved = append(saved, string(text))
		}
	}
	assert.Contains(s, saved, `{"enable":true,"name":"`+whole+`"}`, "without options")
	s.ok("bdev_lvol_delete_lvstore", P{"lvs_name": store})
	assert.Zero(s, s.counted(whole), "closing a channel removes its counts")
}
