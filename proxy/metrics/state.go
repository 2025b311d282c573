package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A State is how proxy and target are at the moment.
type State struct {
	Connections  int                  // open ones from clients
	InFlight     int                  // calls that have not been answered
	Certificates map[string]time.Time // when they expire: server, client_ca
	Target       TargetState
}

// TargetState is what is known of the target.
type TargetState struct {
	Up          bool
	Release     string          // "" when not known
	Phase       string          // startup, runtime; "" when not known
	Connections int             // to it
	Reconnects  int             // since the start
	Loads       map[string]Load // by user
}

// A Load is what one user has at the target.
type Load struct {
	InFlight int // calls that it has not answered
	Waiting  int // calls that wait for their turn
}

var (
	connections       = desc("connections", "Connections of clients that are open.")
	inFlight          = desc("calls_in_flight", "Calls that have not been answered yet.")
	certificateExpiry = desc("certificate_expiry_timestamp_seconds", "When a certificate expires, in seconds since 1970; of several the first.", "certificate")
	targetUp          = desc("target_up", "Whether the target answers.")
	targetInfo        = desc("target_info", "1; the labels say what is known of the target.", "release", "state")
	targetConnections = desc("target_connections", "Connections to the target that carry calls.")
	targetReconnects  = desc("target_reconnects_total", "Times that the target was connected to again after it had been lost.")
	targetInFlight    = desc("target_calls_in_flight", "Calls that the target has not answered, those that nobody waits for any more included, by user.", "user")
	queueLength       = desc("queue_length", "Calls that wait for their turn at the target, by user.", "user")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// A stateCollector asks for the State at each scrape.
type stateCollector struct {
	metrics *Metrics
	read    func() State
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connections, inFlight, certificateExpiry, targetUp, targetInfo, targetConnections, targetReconnects, targetInFlight, queueLength} {
		ch <- d
	}
}

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(connections, float64(s.Connections))
	gauge(inFlight, float64(s.InFlight))
	for name, at := range s.Certificates {
		gauge(certificateExpiry, seconds(at), name)
	}
	up := 0.0
	if s.Target.Up {
		up = 1
	}
	gauge(targetUp, up)
	gauge(targetInfo, 1, s.Target.Release, s.Target.Phase)
	gauge(targetConnections, float64(s.Target.Connections))
	ch <- prometheus.MustNewConstMetric(targetReconnects, prometheus.CounterValue, float64(s.Target.Reconnects))
	for user, l := range c.metrics.byUser(s.Target.Loads) {
		gauge(targetInFlight, float64(l.InFlight), user)
		gauge(queueLength, float64(l.Waiting), user)
	}
}

// byUser adds the loads of users without a label of their own up under "". Those
// with one are always there.
func (m *Metrics) byUser(loads map[string]Load) map[string]Load {
	m.mu.RLock()
	defer m.mu.RUnlock()
	bounded := map[string]Load{"": {}}
	for user := range m.users {
		bounded[user] = Load{}
	}
	for user, l := range loads {
		if !m.users[user] {
			user = ""
		}
		sum := bounded[user]
		bounded[user] = Load{sum.InFlight + l.InFlight, sum.Waiting + l.Waiting}
	}
	return bounded
}
