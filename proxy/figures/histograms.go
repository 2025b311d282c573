package figures

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// A Histogram contains the latencies of a bdev's I/O as the target last reported them.
type Histogram struct {
	Bdev string // the name given to NewReader
	// Store and Volume are the names of a logical volume and its lvstore. They are "" for other
	// bdevs.
	Store, Volume string
	// Latencies covers the I/O since the histogram was enabled, but only on I/O channels that are
	// still open. It is invalid if Err is set.
	Latencies Latencies
	Err       error
}

// These errors explain why a bdev's latencies are unknown. Histogram.Err can also be the error of a
// failed call.
var (
	// ErrNoBdev means that there is neither a bdev nor a logical volume with this name.
	ErrNoBdev = errors.New("no such bdev or logical volume")
	// ErrNoHistogram means that the target keeps no histogram for the bdev.
	ErrNoHistogram = errors.New("the histogram is not enabled")
	// ErrPartialHistogram means that the target's histogram does not count all I/O. On v26.05, a
	// histogram counts I/O on channels opened after it was enabled only if it has SPDK's default
	// granularity and the full range.
	ErrPartialHistogram = errors.New("the histogram has a limited range or a granularity other than 7, so it leaves out I/O channels that were opened since it was enabled")
)

const getHistogram = "bdev_get_histogram"

// readHistogram reads the histogram that is due next. Each read includes only one histogram, so the
// number of histograms does not affect the rate of calls to the target.
func (r *Reader) readHistogram(ctx context.Context) {
	if r.clock == 0 || len(r.stores) > 0 && !r.listed {
		return // the bdevs and volumes are not known yet
	}
	for range r.names {
		h := Histogram{Bdev: r.names[r.next]}
		r.next = (r.next + 1) % len(r.names)
		var known bool
		if h.Store, h.Volume, known = r.resolve(h.Bdev); !known {
			h.Err = ErrNoBdev
			r.failures = append(r.failures, Failure{getHistogram, h.Err})
			r.keep(h)
			return
		}
		made, err := r.callFor(ctx, getHistogram, h.Bdev, 0, func(raw json.RawMessage) (err error) {
			h.Latencies, err = readLatencies(raw)
			return err
		})
		if !made {
			continue
		}
		if err != nil {
			h.Err = histogramError(err)
		}
		r.keep(h)
		return
	}
}

// resolve finds a bdev and, if it is a volume, the volume's names.
func (r *Reader) resolve(name string) (store, volume string, known bool) {
	for i := range r.volumes {
		if v := &r.volumes[i]; v.UUID == name || v.named(name) {
			return v.Store, v.Name, true
		}
	}
	return "", "", slices.ContainsFunc(r.bdevs, func(b Bdev) bool { return b.Name == name })
}

// named reports whether the volume has the alias STORE/VOLUME.
func (v *Volume) named(alias string) bool {
	n := len(v.Store)
	return len(alias) == n+1+len(v.Name) && alias[:n] == v.Store && alias[n] == '/' && alias[n+1:] == v.Name
}

// keep stores a histogram in place of its previous version.
func (r *Reader) keep(h Histogram) {
	r.histograms = slices.Clone(r.histograms) // returned Figures share the old slice
	for i := range r.histograms {
		if r.histograms[i].Bdev == h.Bdev {
			r.histograms[i] = h
			return
		}
	}
	r.histograms = append(r.histograms, h)
}
