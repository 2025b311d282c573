package targetmetrics

import (
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// states lists the values of the label "state".
var states = []string{"unreachable", "startup", "runtime"}

func (e *Exporter) write(f *figures.Figures) []byte {
	size := 8 << 10
	if e.text != nil {
		size = len(e.text.Plain) * 9 / 8
	}
	w := &writer{out: make([]byte, 0, size)}
	e.writeTarget(w, f)
	e.addUpHistograms(f)
	if !f.Up {
		return w.out
	}
	e.addUp(f)
	e.writeStores(w, f)
	e.writeVolumes(w, f)
	e.writeHistograms(w, f)
	writeTenants(w, f.Tenants)
	writeNVMf(w, f.NVMf)
	writeISCSI(w, f.ISCSI)
	writeReactors(w, f)
	writeThreads(w, f, e.limit)
	return w.out
}

func (e *Exporter) writeTarget(w *writer, f *figures.Figures) {
	w.one("spdk_up", gauge, "Whether the target responds and is past its startup. Otherwise, there are no other figures about the target.", truth(f.Up))
	w.family("spdk_state", gauge, "1 for the target's present state.")
	for _, s := range states {
		w.sample("spdk_state", labelled("state", s), truth(s == f.Phase))
	}
	if f.Release != "" {
		w.family("spdk_info", gauge, "1; the label is the target's release.")
		w.sample("spdk_info", labelled("release", f.Release), 1)
	}
	w.one("spdk_restarts_total", counter, "Times that the target responded again after its connection had ended, since the proxy started.", float64(f.Restarts))
	if !f.Started.IsZero() {
		w.one("spdk_start_time_seconds", gauge, "When the target started, in seconds since 1970, by the time that its reactors count.", unix(f.Started))
	}
	w.one("spdk_reading_timestamp_seconds", gauge, "When these figures were read, in seconds since 1970.", unix(f.Taken))
	w.one("spdk_reading_duration_seconds", gauge, "How long reading these figures took.", f.Took.Seconds())
	e.calls += f.Calls
	w.one("spdk_reading_calls_total", counter, "Calls that the proxy made to the target to read figures.", float64(e.calls))
	for _, failed := range f.Failures {
		e.failures[failed.Method]++
	}
	if len(e.failures) > 0 {
		w.family("spdk_reading_failures_total", counter, "Figures that could not be read, by the method that reports them.")
		for _, method := range sorted(e.failures) {
			w.count("spdk_reading_failures_total", labelled("method", method), uint64(e.failures[method]))
		}
	}
}

func (e *Exporter) writeStores(w *writer, f *figures.Figures) {
	if len(f.Stores) == 0 {
		return
	}
	labels := make([]string, len(f.Stores))
	for i, s := range f.Stores {
		labels[i] = labelled("lvstore", s.Name)
	}
	each := func(name, help string, value func(figures.Store) uint64) {
		w.family(name, gauge, help)
		for i, s := range f.Stores {
			w.count(name, labels[i], value(s))
		}
	}
	each("spdk_lvstore_size_bytes", "Space of the lvstore for data.", figures.Store.Size)
	each("spdk_lvstore_free_bytes", "Space that no volume or snapshot has allocated.", figures.Store.FreeBytes)
	each("spdk_lvstore_cluster_size_bytes", "Size of a cluster.", func(s figures.Store) uint64 { return s.ClusterSize })
	each("spdk_lvstore_clusters", "Clusters of the lvstore for data.", func(s figures.Store) uint64 { return s.Clusters })
	each("spdk_lvstore_free_clusters", "Clusters that no volume or snapshot has allocated.", func(s figures.Store) uint64 { return s.Free })
	each("spdk_lvstore_volumes", "Volumes, without snapshots.", func(s figures.Store) uint64 { return uint64(s.Volumes) })
	each("spdk_lvstore_snapshots", "Snapshots.", func(s figures.Store) uint64 { return uint64(s.Snapshots) })
	each("spdk_lvstore_committed_bytes", "Space in use when all volumes have been written in full: their sizes, and what snapshots have allocated. More than the size means that writes can fail.",
		func(s figures.Store) uint64 { return s.Committed })
	each("spdk_lvstore_unsized_volumes", "Volumes whose size is not known yet, and which spdk_lvstore_committed_bytes leaves out.", func(s figures.Store) uint64 { return uint64(s.Unsized) })

	writeIO(w, "spdk_lvstore", "all volumes of the lvstore, since the proxy first read them", len(f.Stores), func(i int) (string, figures.IO) { return labels[i], e.byStore[f.Stores[i].Name] })
}

func (e *Exporter) writeVolumes(w *writer, f *figures.Figures) {
	names := make([]string, len(f.Volumes))
	for i := range f.Volumes {
		names[i] = f.Volumes[i].UUID
	}
	volumesLeft, bdevsLeft := 0, 0
	e.named, volumesLeft = admit(e.named, names, e.limit)
	names = names[:0]
	for _, b := range f.Bdevs {
		names = append(names, b.Name)
	}
	e.bdevs, bdevsLeft = admit(e.bdevs, names, e.limit)
	w.family("spdk_series_omitted", gauge, "Objects that do not have their own series because there are more than metrics.volumes allows.")
	w.count("spdk_series_omitted", labelled("object", "lvol"), uint64(volumesLeft))
	w.count("spdk_series_omitted", labelled("object", "bdev"), uint64(bdevsLeft))
	w.count("spdk_series_omitted", labelled("object", "poller"), uint64(max(0, len(f.Pollers)-max(e.limit, minPollers))))

	volumes, labels := make([]*figures.Volume, 0, len(e.named)), make([]string, 0, len(e.named))
	for i := range f.Volumes {
		if v := &f.Volumes[i]; e.named[v.UUID] {
			volumes, labels = append(volumes, v), append(labels, labelled("lvstore", v.Store, "lvol", v.Name))
		}
	}
	if len(volumes) > 0 {
		w.family("spdk_lvol_size_bytes", gauge, "Size of the volume or snapshot.")
		for i, v := range volumes {
			if v.Size > 0 {
				w.count("spdk_lvol_size_bytes", labels[i], v.Size)
			}
		}
		w.family("spdk_lvol_allocated_bytes", gauge, "Space that the volume or snapshot itself has allocated, excluding its parents' space. SPDK reports it since v24.05.")
		for i, v := range volumes {
			if v.AllocatedKnown {
				w.count("spdk_lvol_allocated_bytes", labels[i], v.Allocated)
			}
		}
		with, at := volumes[:0:0], labels[:0:0]
		for i, v := range volumes {
			if v.HasIO {
				with, at = append(with, v), append(at, labels[i])
			}
		}
		writeIO(w, "spdk_lvol", "the volume", len(with), func(i int) (string, figures.IO) { return at[i], with[i].IO })
	}
	var bdevs []figures.Bdev
	labels = labels[:0]
	for _, b := range f.Bdevs {
		if e.bdevs[b.Name] {
			bdevs, labels = append(bdevs, b), append(labels, labelled("bdev", b.Name))
		}
	}
	writeIO(w, "spdk_bdev", "the bdev, which is not a logical volume", len(bdevs), func(i int) (string, figures.IO) { return labels[i], bdevs[i].IO })
}

var operations = []struct {
	label     string
	operation func(*figures.IO) *figures.Operation
}{
	{`op="read"`, func(io *figures.IO) *figures.Operation { return &io.Read }},
	{`op="write"`, func(io *figures.IO) *figures.Operation { return &io.Write }},
	{`op="unmap"`, func(io *figures.IO) *figures.Operation { return &io.Unmap }},
}

// writeIO writes the I/O of n objects.
func writeIO(w *writer, prefix, objects string, n int, at func(i int) (labels string, io figures.IO)) {
	if n == 0 {
		return
	}
	each := func(suffix, help string, write func(name, labels string, o *figures.Operation)) {
		name := prefix + suffix
		w.family(name, counter, help+" of "+objects+".")
		for i := range n {
			labels, io := at(i)
			for _, op := range operations {
				write(name, labels+","+op.label, op.operation(&io))
			}
		}
	}
	each("_io_bytes_total", "Bytes read, written and unmapped", func(name, labels string, o *figures.Operation) { w.count(name, labels, o.Bytes) })
	each("_io_operations_total", "Completed I/O operations", func(name, labels string, o *figures.Operation) { w.count(name, labels, o.Count) })
	each("_io_latency_seconds_total", "Sum of the latencies of the I/O operations", func(name, labels string, o *figures.Operation) { w.sample(name, labels, o.Latency) })
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func number(n uint64) string { return strconv.FormatUint(n, 10) }
