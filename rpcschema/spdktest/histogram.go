package spdktest

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func init() {
	confirm("bdev_enable_histogram", (*engine).bdevEnableHistogram)
	handle("bdev_get_histogram", (*engine).bdevGetHistogram)
	handle("bdev_get_histogram_borders", (*engine).bdevGetHistogramBorders)
}

// A histogramShape defines the buckets of a histogram. Each range of latencies consists of
// 2^granularity buckets; ranges before first and after last are omitted.
type histogramShape struct {
	granularity uint8
	first, last uint32
}

const (
	defaultGranularity = 7
	defaultMinNsec     = 1000
	defaultMaxNsec     = 120e9
	maxGranularity     = 24 // a real target does not have enough memory for more
)

// shapeOf returns the shape for latencies from low up to high, in ticks.
func shapeOf(granularity uint8, low, high uint64) histogramShape {
	s := histogramShape{granularity: granularity}
	s.first, s.last = s.rangeOf(low), s.rangeOf(high-1)
	return s
}

var wholeHistogram = shapeOf(defaultGranularity, 0, math.MaxUint64)

// asTicks converts nanoseconds to ticks. As in SPDK, the calculation overflows for long times, so
// the default of 120 s becomes a few seconds.
func asTicks(nsec uint64) uint64 {
	if nsec == math.MaxUint64 {
		return nsec
	}
	return nsec * tickRate / 1e9
}

func (s histogramShape) rangeOf(ticks uint64) uint32 {
	return uint32(max(0, bits.Len64(ticks)-int(s.granularity)))
}

func (s histogramShape) buckets() int { return int(s.last-s.first+1) << s.granularity }

// bucketOf returns the bucket that counts a latency.
func (s histogramShape) bucketOf(ticks uint64) int {
	r := s.rangeOf(ticks)
	switch {
	case r < s.first:
		return 0
	case r > s.last:
		return s.buckets() - 1
	}
	return int(r-s.first)<<s.granularity + int(ticks>>(max(r, 1)-1)&(1<<s.granularity-1))
}

// end returns the first latency past a bucket.
func (s histogramShape) end(bucket int) uint64 {
	r, within := s.first+uint32(bucket>>s.granularity), uint64(bucket&(1<<s.granularity-1))
	if r == 0 {
		return within + 1
	}
	return 1<<(r+uint32(s.granularity)-1) + (within+1)<<(r-1)
}

// A histogramSetting determines how a bdev's latencies are counted.
type histogramSetting struct {
	enabled bool
	only    spdkrpc.BdevIOType // "" means all types
	shape   *histogramShape    // nil if a histogram cannot be created
}

// A histogram counts the latencies of one channel.
type histogram struct {
	shape  histogramShape
	counts []uint64
}

func newHistogram(s histogramShape) *histogram {
	return &histogram{s, make([]uint64, s.buckets())}
}

// openChannel opens a channel, so that the user can do I/O. As in SPDK, a channel that is opened
// while a histogram is enabled counts all I/O types and the full range, regardless of the settings.
func (b *bdev) openChannel(u *bdevUser) {
	u.channel = true
	if b.histogram.enabled {
		u.latencies = newHistogram(wholeHistogram)
	}
}

func (b *bdev) channels() (list []*bdevUser) {
	for _, u := range b.users {
		if u.channel {
			list = append(list, u)
		}
	}
	return list
}

// tally counts an I/O on a channel.
func (b *bdev) tally(u *bdevUser, kind spdkrpc.BdevIOType, took time.Duration) {
	if h := u.latencies; h != nil && (b.histogram.only == "" || b.histogram.only == kind) {
		h.counts[h.shape.bucketOf(uint64(took))]++
	}
}

func (e *engine) bdevEnableHistogram(p spdkrpc.BdevEnableHistogramParams) error {
	b, ok := e.bdevs.find(p.Name)
	if !ok {
		return errno(syscall.ENODEV)
	}
	if p.Opc != nil && !slices.Contains(valuesOf("bdev_enable_histogram", "opc"), string(*p.Opc)) {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Invalid Io type")
	}
	set := histogramSetting{enabled: p.Enable, only: value(p.Opc)}
	low, high, fine := or(p.MinNsec, defaultMinNsec), or(p.MaxNsec, defaultMaxNsec), or(p.Granularity, defaultGranularity)
	switch {
	case e.before("v25.05"):
		set.shape = &wholeHistogram
	case asTicks(low) < asTicks(high) && fine <= maxGranularity:
		set.shape = new(shapeOf(fine, asTicks(low), asTicks(high)))
	}
	b.histogram = set
	for _, u := range b.channels() {
		switch {
		case !p.Enable:
			u.latencies = nil
		case u.latencies == nil && set.shape == nil:
			b.histogram.enabled = false
			for _, u := range b.channels() {
				u.latencies = nil
			}
			return errno(syscall.ENOMEM)
		case u.latencies == nil:
			u.latencies = newHistogram(*set.shape)
		}
	}
	return nil
}

// latencies returns the sum of the histograms of a bdev's channels. It skips histograms whose shape
// differs from the current one.
func (e *engine) latencies(name string) (*histogram, error) {
	b, ok := e.bdevs.find(name)
	if !ok {
		return nil, errno(syscall.ENODEV)
	}
	shape := b.histogram.shape
	if shape == nil {
		if !e.before("v25.05") {
			return nil, errno(syscall.ENOMEM)
		}
		shape = &wholeHistogram
	}
	sum := newHistogram(*shape)
	for _, u := range b.channels() {
		if u.latencies == nil {
			return nil, internal(syscall.EFAULT)
		}
		if u.latencies.shape == sum.shape {
			for i, n := range u.latencies.counts {
				sum.counts[i] += n
			}
		}
	}
	return sum, nil
}

func (e *engine) bdevGetHistogram(p spdkrpc.BdevGetHistogramParams) (out spdkrpc.BdevHistogram, err error) {
	h, err := e.latencies(p.Name)
	if err != nil {
		return out, err
	}
	raw := make([]byte, 0, 8*len(h.counts))
	for _, n := range h.counts {
		raw = binary.NativeEndian.AppendUint64(raw, n)
	}
	shift := int64(h.shape.granularity)
	return spdkrpc.BdevHistogram{
		Histogram: base64.StdEncoding.EncodeToString(raw), BucketShift: &shift, Granularity: &shift, MinRange: &h.shape.first, MaxRange: &h.shape.last, TSCRate: int64(tickRate),
	}, nil
}

// bdevGetHistogramBorders returns, for each border, the number of latencies in the buckets that
// begin at or before it. The last number is the total. As in SPDK, values after the last bucket are
// 0.
func (e *engine) bdevGetHistogramBorders(p spdkrpc.BdevGetHistogramBordersParams) (out spdkrpc.BdevHistogramBorders, err error) {
	h, err := e.latencies(p.Name)
	if err != nil {
		return out, err
	}
	out.BordersCount = make([]uint64, len(p.Borders)+1)
	at, sum, begin := 0, uint64(0), uint64(0)
	for i, n := range h.counts {
		sum += n
		for at < len(p.Borders) && begin > p.Borders[at]*(tickRate/1e6) {
			at++
			out.BordersCount[at] = out.BordersCount[at-1]
		}
		out.BordersCount[at] = sum
		begin = h.shape.end(i)
	}
	return out, nil
}

// histogramConfig returns the call that SPDK reports for a bdev's histogram. As in SPDK, it omits
// the shape.
func (b *bdev) histogramConfig() configCall {
	p := spdkrpc.BdevEnableHistogramParams{Name: b.name, Enable: true}
	if b.histogram.only != "" {
		p.Opc = &b.histogram.only
	}
	return configCall{"bdev_enable_histogram", p}
}

// DoLatencies simulates I/O of the given kind on a bdev's oldest channel. For each latency, it
// counts one I/O in the histogram. It reports whether the bdev has a channel.
func (t *Target) DoLatencies(bdev string, kind spdkrpc.BdevIOType, took ...time.Duration) bool {
	found := false
	t.inEngine(func(e *engine) {
		b, ok := e.bdevs.find(bdev)
		if !ok || len(b.channels()) == 0 {
			return
		}
		found = true
		for _, d := range took {
			b.tally(b.channels()[0], kind, d)
		}
	})
	return found
}
