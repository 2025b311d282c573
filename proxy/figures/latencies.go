package figures

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
)

// LatencyBounds contains the upper bounds for Latencies.Counts, in seconds.
var LatencyBounds = [...]float64{
	1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, .1, .25, .5, 1, 2.5, 5, 10,
}

// Latencies counts I/O operations by latency.
type Latencies struct {
	// Counts contains, for each of LatencyBounds, the number of operations up to that bound and
	// above the previous bound. The last element counts operations above all bounds. If SPDK's
	// bucket for an operation contains a bound, the operation counts as above that bound, so that
	// no operation appears faster than it was.
	Counts [len(LatencyBounds) + 1]uint64
	// Sum is the sum of the latencies in seconds. Each latency is approximated by the middle of its
	// SPDK bucket, which differs from the true latency by at most 1/256.
	Sum float64
}

var errNotHistogram = errors.New("the histogram has an unexpected format")

// SPDK divides latencies, measured in ticks, into ranges, and each range into buckets of equal
// width. In ranges 0 and 1, a bucket is one tick wide; in every further range, buckets are twice as
// wide as in the previous range.
const (
	granularity = 7 // a range has 2^granularity buckets
	ranges      = 64 - granularity + 1
	buckets     = ranges << granularity
)

// readLatencies parses the result of bdev_get_histogram.
func readLatencies(raw json.RawMessage) (l Latencies, err error) {
	counts, rate, err := readCounts(raw)
	if err == nil {
		l.add(counts, rate)
	}
	return l, err
}

// readCounts parses the result of bdev_get_histogram. counts contains SPDK's buckets as 64-bit
// numbers in the byte order of this host, on which the target also runs. ticks is the number of
// ticks per second.
func readCounts(raw json.RawMessage) (counts []byte, ticks float64, err error) {
	var encoded string
	var rate, shift uint64
	first, last := uint64(0), uint64(ranges-1) // the only values until v25.01
	err = read(raw, func(t *text, at int) int {
		return t.members(at, func(name string, at int) int {
			switch name {
			case "histogram":
				return t.name(at, &encoded)
			case "tsc_rate":
				return t.number(at, &rate)
			case "bucket_shift", "granularity": // names before and since v25.05
				return t.number(at, &shift)
			case "min_range":
				return t.number(at, &first)
			case "max_range":
				return t.number(at, &last)
			}
			return t.Skip(at)
		})
	})
	if err != nil {
		return nil, 0, err
	}
	if encoded == "" || rate == 0 {
		return nil, 0, errNotHistogram
	}
	if shift != granularity || first != 0 || last != ranges-1 {
		return nil, 0, ErrPartialHistogram
	}
	counts, err = base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(counts) != 8*buckets {
		return nil, 0, errNotHistogram
	}
	return counts, float64(rate), nil
}

// add adds the counts in SPDK's buckets.
func (l *Latencies) add(counts []byte, rate float64) {
	at, bound := 0, LatencyBounds[0]*rate
	for i := range buckets {
		n := binary.NativeEndian.Uint64(counts[8*i:])
		if n == 0 {
			continue
		}
		low, high := bucket(i)
		for at < len(LatencyBounds) && float64(high) > bound {
			if at++; at < len(LatencyBounds) {
				bound = LatencyBounds[at] * rate
			}
		}
		l.Counts[at] += n
		l.Sum += float64(n) * (float64(low) + float64(high)) / 2 / rate
	}
}

// bucket returns the shortest and the longest latency of a bucket, in ticks.
func bucket(i int) (low, high uint64) {
	within, part := uint64(i%(1<<granularity)), i>>granularity
	if part == 0 {
		return within, within
	}
	low = 1<<(part+granularity-1) + within<<(part-1)
	return low, low + (1<<(part-1) - 1)
}

// Count returns the number of operations.
func (l *Latencies) Count() (sum uint64) {
	for _, n := range l.Counts {
		sum += n
	}
	return sum
}

// Since returns the operations counted since an earlier reading. It returns false if a count has
// decreased, which means that SPDK has dropped the counts of a closed I/O channel, or that the
// histogram has been enabled again.
func (l *Latencies) Since(before *Latencies) (d Latencies, ok bool) {
	for i := range l.Counts {
		if l.Counts[i] < before.Counts[i] {
			return Latencies{}, false
		}
		d.Counts[i] = l.Counts[i] - before.Counts[i]
	}
	d.Sum = math.Max(0, l.Sum-before.Sum)
	return d, true
}

// Add adds the counts of d.
func (l *Latencies) Add(d *Latencies) {
	for i := range l.Counts {
		l.Counts[i] += d.Counts[i]
	}
	l.Sum += d.Sum
}
