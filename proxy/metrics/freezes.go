package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// freezes contains the metrics about volumes frozen for snapshots.
type freezes struct {
	took      prometheus.Histogram
	overdue   prometheus.Counter
	refused   prometheus.Counter
	recovered prometheus.Counter
}

func newFreezes(r prometheus.Registerer) freezes {
	f := freezes{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "freeze_duration_seconds", Buckets: buckets,
			Help: "Time that volumes were frozen, during which the I/O of their hosts waited.",
		}),
		overdue:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "freezes_overdue_total", Help: "Times that volumes were frozen for more than 2 seconds."}),
		refused:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "snapshots_refused_total", Help: "Snapshots, deletions and other changes refused because a volume was in use and was not to be frozen, or could not be frozen."}),
		recovered: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "thaws_by_recovery_total", Help: "Times that recovery thawed volumes that an interrupted operation had left frozen."}),
	}
	r.MustRegister(f.took, f.overdue, f.refused, f.recovered)
	return f
}

// Froze records the duration of a freeze of one or more volumes.
func (m *Metrics) Froze(took time.Duration, overdue bool) {
	m.freezes.took.Observe(took.Seconds())
	if overdue {
		m.freezes.overdue.Inc()
	}
}

// SnapshotRefused counts a snapshot refused because the volume is in use.
func (m *Metrics) SnapshotRefused() { m.freezes.refused.Inc() }

// Thawed counts operations whose volumes were thawed by a recovery.
func (m *Metrics) Thawed(operations int) { m.freezes.recovered.Add(float64(operations)) }
