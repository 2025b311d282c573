package targetmetrics

import (
	"strconv"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// A histogramSum adds up the operations that an SPDK histogram has counted between reads. SPDK's
// own counts decrease when an I/O channel is closed, which Prometheus would interpret as a counter
// reset.
type histogramSum struct {
	sum    figures.Latencies
	before figures.Latencies
	known  bool // whether before is valid
}

// addUpHistograms adds the operations counted since the previous read. It adds nothing when a
// histogram is read for the first time, or when its counts have decreased.
func (e *Exporter) addUpHistograms(f *figures.Figures) {
	read := map[string]bool{}
	for i := range f.Histograms {
		h := &f.Histograms[i]
		if h.Err != nil {
			continue
		}
		read[h.Bdev] = true
		s := e.histograms[h.Bdev]
		if s == nil {
			s = &histogramSum{}
			e.histograms[h.Bdev] = s
		}
		if s.known {
			if d, ok := h.Latencies.Since(&s.before); ok {
				s.sum.Add(&d)
			}
		}
		s.before, s.known = h.Latencies, true
	}
	for name, s := range e.histograms {
		s.known = s.known && read[name]
	}
}

func (e *Exporter) writeHistograms(w *writer, f *figures.Figures) {
	if len(f.Histograms) == 0 {
		return
	}
	w.family("spdk_io_duration_up", gauge, "Whether the last reading of the bdev's latency histogram succeeded. If not, the proxy's log contains the reason.")
	var volumes, bdevs []series
	seen := map[string]bool{} // a volume may be listed both by its alias and by its UUID
	for i := range f.Histograms {
		h := &f.Histograms[i]
		w.sample("spdk_io_duration_up", labelled("bdev", h.Bdev), truth(h.Err == nil))
		labels, into := labelled("bdev", h.Bdev), &bdevs
		if h.Volume != "" {
			labels, into = labelled("lvstore", h.Store, "lvol", h.Volume), &volumes
		}
		if h.Err == nil && !seen[labels] {
			seen[labels] = true
			*into = append(*into, series{labels, &e.histograms[h.Bdev].sum})
		}
	}
	writeLatencies(w, "spdk_lvol_io_duration_seconds", "the volume", volumes)
	writeLatencies(w, "spdk_bdev_io_duration_seconds", "the bdev, which is not a logical volume", bdevs)
}

// A series is a histogram with its labels.
type series struct {
	labels    string
	latencies *figures.Latencies
}

func writeLatencies(w *writer, name, objects string, list []series) {
	if len(list) == 0 {
		return
	}
	w.family(name, "histogram", "Latencies of the I/O operations of "+objects+", since the proxy first read its histogram. The sum is computed from SPDK's buckets and off by at most 0.4 %.")
	for _, s := range list {
		count := uint64(0)
		for i, n := range s.latencies.Counts {
			le := "+Inf"
			if i < len(figures.LatencyBounds) {
				le = strconv.FormatFloat(figures.LatencyBounds[i], 'g', -1, 64)
			}
			count += n
			w.count(name+"_bucket", s.labels+`,le="`+le+`"`, count)
		}
		w.sample(name+"_sum", s.labels, s.latencies.Sum)
		w.count(name+"_count", s.labels, count)
	}
}
