package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A VolumeIO contains the I/O of a published volume, as counted by its target.
type VolumeIO struct {
	Target, Volume, Lvol string
	// Namespace and Claim identify the PersistentVolumeClaim; empty if unknown.
	Namespace, Claim                       string
	Reads, Writes, Unmaps                  uint64
	ReadBytes, WrittenBytes, UnmappedBytes uint64
	ReadSeconds, WriteSeconds              float64
}

// volumes collects the I/O of the published volumes. The values come from SPDK.
type volumes struct {
	all    atomic.Pointer[[]VolumeIO]
	series []volumeSeries
}

type volumeSeries struct {
	desc  *prometheus.Desc
	value func(VolumeIO) float64
}

var volumeLabels = []string{"target", "volume", "lvol", "namespace", "persistentvolumeclaim"}

func newVolumes() *volumes {
	v := &volumes{}
	add := func(name, help string, value func(VolumeIO) float64) {
		v.series = append(v.series, volumeSeries{prometheus.NewDesc(prometheus.BuildFQName(namespace, "volume", name), help, volumeLabels, nil), value})
	}
	add("read_bytes_total", "Bytes read from a published volume since its target started.", func(v VolumeIO) float64 { return float64(v.ReadBytes) })
	add("written_bytes_total", "Bytes written to a published volume since its target started.", func(v VolumeIO) float64 { return float64(v.WrittenBytes) })
	add("unmapped_bytes_total", "Bytes of a published volume that hosts discarded since its target started.", func(v VolumeIO) float64 { return float64(v.UnmappedBytes) })
	add("reads_total", "Reads of a published volume since its target started.", func(v VolumeIO) float64 { return float64(v.Reads) })
	add("writes_total", "Writes to a published volume since its target started.", func(v VolumeIO) float64 { return float64(v.Writes) })
	add("unmaps_total", "Discards of a published volume since its target started.", func(v VolumeIO) float64 { return float64(v.Unmaps) })
	add("read_seconds_total", "Sum of the times that reads of a published volume took in the target.", func(v VolumeIO) float64 { return v.ReadSeconds })
	add("write_seconds_total", "Sum of the times that writes to a published volume took in the target.", func(v VolumeIO) float64 { return v.WriteSeconds })
	return v
}

// Describe implements [prometheus.Collector].
func (v *volumes) Describe(out chan<- *prometheus.Desc) {
	for _, s := range v.series {
		out <- s.desc
	}
}

// Collect implements [prometheus.Collector].
func (v *volumes) Collect(out chan<- prometheus.Metric) {
	all := v.all.Load()
	if all == nil {
		return
	}
	for _, io := range *all {
		for _, s := range v.series {
			out <- prometheus.MustNewConstMetric(s.desc, prometheus.CounterValue, s.value(io), io.Target, io.Volume, io.Lvol, io.Namespace, io.Claim)
		}
	}
}

// Volumes records the I/O of all published volumes. all must not contain duplicates.
func (m *Metrics) Volumes(all []VolumeIO) {
	if m != nil {
		m.volumes.all.Store(&all)
	}
}
