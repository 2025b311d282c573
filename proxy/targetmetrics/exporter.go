package targetmetrics

import (
	"bytes"
	"compress/gzip"
	"maps"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// ContentType is the content type of a Text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// A Text contains the figures of one read in Prometheus' text format. It is safe for concurrent
// use.
type Text struct {
	Plain  []byte
	packed func() []byte
}

// Gzipped returns the text in gzip format. The text is compressed only once.
func (t *Text) Gzipped() []byte { return t.packed() }

// An Exporter writes the figures of one target in Prometheus' text format. It is safe for
// concurrent use.
type Exporter struct {
	limit int

	mu       sync.Mutex
	figures  *figures.Figures
	text     *Text
	named    map[string]bool // volumes with series of their own, by UUID
	bdevs    map[string]bool // other bdevs with series of their own
	before   map[string]figures.IO
	byStore  map[string]figures.IO // for each lvstore, the I/O of all its volumes since this program started
	failures map[string]int
	calls    int

	histograms map[string]*histogramSum // by name of the bdev
}

// New returns an Exporter in which at most limit volumes, and at most limit other bdevs, have
// series of their own.
func New(limit int) *Exporter {
	return &Exporter{limit: limit, named: map[string]bool{}, bdevs: map[string]bool{}, byStore: map[string]figures.IO{}, failures: map[string]int{}, histograms: map[string]*histogramSum{}}
}

// Text returns figures in Prometheus' text format. Calls with the same figures return the same
// text. Figures must be passed in the order in which they were read.
func (e *Exporter) Text(f *figures.Figures) *Text {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.figures == f {
		return e.text
	}
	plain := e.write(f)
	e.figures, e.text = f, &Text{Plain: plain, packed: sync.OnceValue(func() []byte { return pack(plain) })}
	return e.text
}

func pack(plain []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is valid
	}
	_, _ = z.Write(plain) // writing to a buffer cannot fail
	_ = z.Close()
	return b.Bytes()
}

// admit chooses the objects that have series: those that already had them, and others up to the
// limit. Therefore, series do not come and go as the number of objects changes.
func admit(had map[string]bool, names []string, limit int) (have map[string]bool, left int) {
	have = make(map[string]bool, min(limit, len(names)))
	for _, n := range names {
		if had[n] {
			have[n] = true
		}
	}
	for _, n := range names {
		if !have[n] && len(have) < limit {
			have[n] = true
		}
	}
	return have, len(names) - len(have)
}

// addUp adds the I/O since the previous figures to the lvstores' sums. The sums never decrease,
// even if volumes are deleted or the target is restarted.
func (e *Exporter) addUp(f *figures.Figures) {
	now := make(map[string]figures.IO, len(f.Volumes))
	if len(f.Failures) > 0 { // this reading may merely lack some volumes
		maps.Copy(now, e.before)
	}
	for i := range f.Volumes {
		v := &f.Volumes[i]
		before, known := e.before[v.UUID]
		if !v.HasIO {
			if known {
				now[v.UUID] = before
			}
			continue
		}
		now[v.UUID] = v.IO
		sum := e.byStore[v.Store]
		add(&sum.Read, before.Read, v.IO.Read)
		add(&sum.Write, before.Write, v.IO.Write)
		add(&sum.Unmap, before.Unmap, v.IO.Unmap)
		e.byStore[v.Store] = sum
	}
	e.before = now
}

// add adds the operations counted since the earlier reading. If now is less than before, SPDK has
// reset its counters.
func add(sum *figures.Operation, before, now figures.Operation) {
	if now.Count < before.Count || now.Bytes < before.Bytes || now.Latency < before.Latency {
		before = figures.Operation{}
	}
	sum.Bytes += now.Bytes - before.Bytes
	sum.Count += now.Count - before.Count
	sum.Latency += now.Latency - before.Latency
}
