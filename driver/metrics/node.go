package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A NodeVolume is the state of a volume staged on this node.
type NodeVolume struct {
	Target, Volume string
	State          string // one of a fixed set of values
	ReadOnly       bool   // the kernel has made the file system read-only after errors
	// Live and Expected count the volume's paths. If Expected is 0, the number of paths is unknown.
	Live, Expected int
}

// nodeVolumes collects the states of the node's volumes. Each volume staged on the node has one set
// of series.
type nodeVolumes struct {
	all                             atomic.Pointer[[]NodeVolume]
	state, live, expected, readOnly *prometheus.Desc
	reconnects                      *prometheus.CounterVec
	checked                         prometheus.Gauge
}

func newNodeVolumes() *nodeVolumes {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "node", name), help, append([]string{"target", "volume"}, labels...), nil)
	}
	return &nodeVolumes{
		state:    desc("volume_state", "1; the label state contains the most severe problem of a volume staged on this node, or ok.", "state"),
		live:     desc("volume_paths_live", "Paths of a staged volume that can transport I/O."),
		expected: desc("volume_paths_expected", "Paths that a staged volume has if all of its target's addresses respond."),
		readOnly: desc("volume_read_only", "Whether the kernel made a staged volume's file system read-only after errors."),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "node", Name: "reconnects_total", Help: "Attempts to restore connections that the kernel had given up, by outcome: ok or failed.",
		}, []string{"outcome"}),
		checked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "node", Name: "last_check_timestamp_seconds", Help: "When the volumes staged on this node were last checked.",
		}),
	}
}

// Describe implements [prometheus.Collector].
func (v *nodeVolumes) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{v.state, v.live, v.expected, v.readOnly} {
		out <- d
	}
	v.reconnects.Describe(out)
	v.checked.Describe(out)
}

// Collect implements [prometheus.Collector]. It collects nothing if the process monitors no
// volumes.
func (v *nodeVolumes) Collect(out chan<- prometheus.Metric) {
	all := v.all.Load()
	if all == nil {
		return
	}
	for _, n := range *all {
		add := func(d *prometheus.Desc, value float64, more ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{n.Target, n.Volume}, more...)...)
		}
		add(v.state, 1, n.State)
		add(v.readOnly, number(n.ReadOnly))
		if n.Expected > 0 {
			add(v.live, float64(n.Live))
			add(v.expected, float64(n.Expected))
		}
	}
	v.reconnects.Collect(out)
	v.checked.Collect(out)
}

// A ReplicatedVolume is the state of a volume with two replicas that is staged on this node.
type ReplicatedVolume struct {
	Volume string
	// InSync counts the replicas that are in sync; 0 if the number is unknown.
	InSync int
	// Waiting means that writes may be waiting for a storage server or for the API server.
	Waiting bool
	// Rebuilt is the part of a replica that has been rebuilt, from 0 to 1. It is negative if no
	// replica is being rebuilt.
	Rebuilt float64
}

// replicatedVolumes collects the states of the node's replicated volumes.
type replicatedVolumes struct {
	all                      atomic.Pointer[func() []ReplicatedVolume]
	inSync, waiting, rebuilt *prometheus.Desc
}

func newReplicatedVolumes() *replicatedVolumes {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "node", name), help, []string{"volume"}, nil)
	}
	return &replicatedVolumes{
		inSync:  desc("replicas_in_sync", "Replicas that are in sync, of the two that a replicated volume has."),
		waiting: desc("replicated_volume_waiting", "Whether writes to a replicated volume may be waiting for a storage server or for the Kubernetes API."),
		rebuilt: desc("replica_rebuilt_ratio", "Part of a replica that has been rebuilt. There is a series only during a rebuild."),
	}
}

// Describe implements [prometheus.Collector].
func (v *replicatedVolumes) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{v.inSync, v.waiting, v.rebuilt} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (v *replicatedVolumes) Collect(out chan<- prometheus.Metric) {
	all := v.all.Load()
	if all == nil {
		return
	}
	for _, r := range (*all)() {
		add := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, r.Volume)
		}
		if r.InSync > 0 {
			add(v.inSync, float64(r.InSync))
		}
		add(v.waiting, number(r.Waiting))
		if r.Rebuilt >= 0 {
			add(v.rebuilt, r.Rebuilt)
		}
	}
}

// ReplicatedVolumes sets the function that returns the states of the node's replicated volumes.
// Each scrape calls all. The result must not contain duplicates.
func (m *Metrics) ReplicatedVolumes(all func() []ReplicatedVolume) {
	if m != nil {
		m.replicatedVolumes.all.Store(&all)
	}
}

// NodeVolumes records the states of all volumes staged on this node, and the time of the check. all
// must not contain duplicates.
func (m *Metrics) NodeVolumes(all []NodeVolume) {
	if m == nil {
		return
	}
	m.nodeVolumes.all.Store(&all)
	m.nodeVolumes.checked.SetToCurrentTime()
}

// Reconnected counts an attempt to restore a volume's connections.
func (m *Metrics) Reconnected(ok bool) {
	if m == nil {
		return
	}
	outcome := "failed"
	if ok {
		outcome = "ok"
	}
	m.nodeVolumes.reconnects.WithLabelValues(outcome).Inc()
}
