package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A State describes the proxy and the target at one point in time.
type State struct {
	Connections  int                  // open client connections
	Closed       int                  // connections closed because of the limits
	InFlight     int                  // calls without a response so far
	Sessions     int                  // the console's sessions
	Certificates map[string]time.Time // expiry of the certificates "server" and "client_ca"
	Revocations  time.Time            // expiry of the first revocation list; zero if there is none
	Tokens       map[string]time.Time // for each user, the expiry of the first token
	Learning     int                  // users in learning mode
	Target       TargetState
	Saved        *SavedState // nil if the target's configuration is not saved
}

// SavedState describes the target's saved configuration.
type SavedState struct {
	At      time.Time // modification time of the file; zero if there is no file
	Pending bool      // there are unsaved changes
	Failed  bool      // the last attempt to save failed
	// number of objects in the file that the target lacks; until it is 0, the file is not replaced
	Missing int
	Lost    int  // number of the target's RAIDs that a restart would not restore
	Chosen  bool // an administrator chose the file, but the target has not loaded it yet
}

// TargetState describes the target.
type TargetState struct {
	Up            bool
	UntrustedPeer bool // an untrusted user listens at the socket
	// whether the target loads bdevs from data written by hosts; nil if unknown
	LoadsWritten  *bool
	LoadsAccepted bool            // the configuration accepts LoadsWritten
	Shared        bool            // another proxy serves the target
	Release       string          // "" means unknown
	Phase         string          // startup or runtime; "" means unknown
	Connections   int             // connections to the target
	Reconnects    int             // reconnections since the start of the proxy
	Loads         map[string]Load // by user
	// LimitsOf returns a user's limits. If it is nil, the metrics omit them.
	LimitsOf func(user string) UserLimits
}

// A Load counts the calls of one user at the target.
type Load struct {
	InFlight int // calls without a response so far
	Waiting  int // calls waiting for a slot
}

// UserLimits contains the limits on one user's calls.
type UserLimits struct {
	InFlight  int
	PerSecond int // 0 means no limit
}

var (
	connections       = desc("connections", "Open client connections.")
	closed            = desc("connections_closed_total", "Client connections that were closed because too many were open.")
	inFlight          = desc("calls_in_flight", "Calls without a response so far.")
	sessions          = desc("console_sessions", "Console sessions that have not ended.")
	certificateExpiry = desc("certificate_expiry_timestamp_seconds", "When a certificate expires, in seconds since 1970; if there are several, the first of them.", "certificate")
	revocationExpiry  = desc("client_crl_expiry_timestamp_seconds", "When the first list of revoked client certificates expires, in seconds since 1970; 0 if there is none.")
	tokenExpiry       = desc("token_expiry_timestamp_seconds", "When the first of a user's bearer tokens expires, in seconds since 1970.", "user")
	learning          = desc("learning_users", "Users in learning mode: their calls are executed although no role allows them.")
	targetStranger    = desc("target_stranger", "Whether an untrusted user listens on the target's socket; nothing is sent there.")
	targetLoads       = desc("target_loads_what_hosts_write", "Whether the target loads lvstores, RAIDs and partitions that hosts write into volumes (bdev_auto_examine); left out while this is not known. accepted is whether target.accept_loading_what_hosts_write is set.", "accepted")
	targetShared      = desc("target_shared", "Whether another spdk-proxy on the same host serves the target.")
	targetUp          = desc("target_up", "Whether the target responds.")
	targetInfo        = desc("target_info", "1; the labels are the release and the state of the target, empty if unknown.", "release", "state")
	targetConnections = desc("target_connections", "Connections to the target that carry calls.")
	targetReconnects  = desc("target_reconnects_total", "Times that the proxy connected to the target again after it had lost the connection.")
	targetInFlight    = desc("target_calls_in_flight", "Calls to which the target has not responded, by user; including calls whose client no longer waits.", "user")
	inFlightLimit     = desc("user_calls_in_flight_limit", "How many of a user's calls may be at the target.", "user")
	perSecondLimit    = desc("user_calls_per_second_limit", "How many calls per second a user may make; left out without a limit.", "user")
	savedAt           = desc("target_config_saved_timestamp_seconds", "When the target's configuration was last saved, in seconds since 1970; 0 if there is no file.")
	savePending       = desc("target_config_save_pending", "Whether there are changes to the target's configuration that are not saved yet.")
	saveFailed        = desc("target_config_save_failed", "Whether the last attempt to save the target's configuration failed.")
	saveMissing       = desc("target_config_missing", "Objects that are in the saved configuration but not on the target. While there are any, the file is not replaced.")
	saveLost          = desc("target_config_not_restorable", "RAIDs of the target that a restart would not restore.")
	saveChosen        = desc("target_config_chosen", "Whether an administrator chose the saved configuration, but the target has not loaded it yet.")
	queueLength       = desc("queue_length", "Calls that wait for their turn at the target, by user.", "user")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// A stateCollector reads the State at each scrape.
type stateCollector struct {
	metrics *Metrics
	read    func() State
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connections, closed, inFlight, sessions, certificateExpiry, revocationExpiry, tokenExpiry, learning, targetStranger, targetLoads, targetShared, targetUp, targetInfo, targetConnections, targetReconnects, targetInFlight, inFlightLimit, perSecondLimit, savedAt, savePending, saveFailed, saveMissing, saveLost, saveChosen, queueLength} {
		ch <- d
	}
}

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(connections, float64(s.Connections))
	ch <- prometheus.MustNewConstMetric(closed, prometheus.CounterValue, float64(s.Closed))
	gauge(inFlight, float64(s.InFlight))
	gauge(sessions, float64(s.Sessions))
	for name, at := range s.Certificates {
		gauge(certificateExpiry, seconds(at), name)
	}
	gauge(revocationExpiry, secondsOrZero(s.Revocations))
	for user, at := range s.Tokens {
		gauge(tokenExpiry, seconds(at), user)
	}
	gauge(learning, float64(s.Learning))
	gauge(targetStranger, boolValue(s.Target.UntrustedPeer))
	gauge(targetShared, boolValue(s.Target.Shared))
	if loads := s.Target.LoadsWritten; loads != nil {
		gauge(targetLoads, boolValue(*loads), strconv.FormatBool(s.Target.LoadsAccepted))
	}
	gauge(targetUp, boolValue(s.Target.Up))
	gauge(targetInfo, 1, s.Target.Release, s.Target.Phase)
	gauge(targetConnections, float64(s.Target.Connections))
	ch <- prometheus.MustNewConstMetric(targetReconnects, prometheus.CounterValue, float64(s.Target.Reconnects))
	for user, l := range c.metrics.byUser(s.Target.Loads) {
		gauge(targetInFlight, float64(l.InFlight), user)
		gauge(queueLength, float64(l.Waiting), user)
		if user == "" || s.Target.LimitsOf == nil {
			continue
		}
		limits := s.Target.LimitsOf(user)
		gauge(inFlightLimit, float64(limits.InFlight), user)
		if limits.PerSecond > 0 {
			gauge(perSecondLimit, float64(limits.PerSecond), user)
		}
	}
	if s.Saved == nil {
		return
	}
	gauge(savedAt, secondsOrZero(s.Saved.At))
	gauge(savePending, boolValue(s.Saved.Pending))
	gauge(saveFailed, boolValue(s.Saved.Failed))
	gauge(saveMissing, float64(s.Saved.Missing))
	gauge(saveLost, float64(s.Saved.Lost))
	gauge(saveChosen, boolValue(s.Saved.Chosen))
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// byUser returns the loads of users with labels of their own. The key "" contains the total of all
// other users.
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

// secondsOrZero converts a time to seconds since 1970. It returns 0 for the zero time.
func secondsOrZero(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return seconds(t)
}
