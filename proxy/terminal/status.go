package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Status contains the data of one screen. Its JSON is for scripts.
type Status struct {
	Time    time.Time  `json:"time"`
	Up      bool       `json:"up"`
	State   string     `json:"state"`
	Release string     `json:"release,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	// restarts of the target since the start of the proxy; absent if there is no proxy
	Restarts *int `json:"restarts,omitempty"`

	// These values come from the proxy's metrics. They are absent if there is no proxy, or if the
	// user is not permitted to read its metrics.
	Proxy         string        `json:"proxy_version,omitempty"`
	Configuration Configuration `json:"configuration,omitempty"`
	// expiry of the proxy's server certificate
	Certificate *time.Time `json:"certificate_expires,omitempty"`

	Stores      []Store     `json:"lvstores"`
	Volumes     int         `json:"volumes"`
	Snapshots   int         `json:"snapshots"`
	Exports     Exports     `json:"exports"`
	Connections Connections `json:"connections"`
	Cores       int         `json:"cores"`
	Busy        float64     `json:"busy"` // share of the time that the cores were busy, 0 to 1
	Users       []User      `json:"users,omitempty"`
	Tenants     []Tenant    `json:"tenants,omitempty"` // tenants that the user may see
	// the user's own limits; absent if there is no proxy
	Limits   *Limits  `json:"limits,omitempty"`
	Warnings []string `json:"warnings"`
	Missing  []string `json:"missing,omitempty"` // data that could not be read, and why

	denied []figures.Failure // the failures in Missing that are due to a lack of permissions
	broken []string          // the other entries of Missing
}

// A Store describes an lvstore, with sizes in bytes.
type Store struct {
	Name      string `json:"name"`
	Size      uint64 `json:"size_bytes"`
	Free      uint64 `json:"free_bytes"`
	Committed uint64 `json:"committed_bytes"`
	Volumes   int    `json:"volumes"`
	Snapshots int    `json:"snapshots"`
}

// Exports contains the numbers of the target's exports.
type Exports struct {
	Subsystems  int `json:"nvmf_subsystems"`
	Namespaces  int `json:"nvmf_namespaces"`
	Listeners   int `json:"nvmf_listeners"`
	TargetNodes int `json:"iscsi_target_nodes"`
}

// Connections contains the numbers of connected hosts.
type Connections struct {
	Controllers uint64 `json:"nvmf_controllers"`
	QueuePairs  uint64 `json:"nvmf_queue_pairs"`
	ISCSI       int    `json:"iscsi"`
}

// A Tenant is a tenant in the result of spdkgate_get_tenants.
type Tenant = spdkrpc.ProxyTenant

// Limits is the result of spdkgate_get_limits.
type Limits = spdkrpc.ProxyLimits

// A User is a user who has made calls since the start of the proxy.
type User struct {
	Name    string `json:"name"`
	Calls   uint64 `json:"calls"`
	Refused uint64 `json:"refused"` // refused by role, tenant or quota
	Failed  uint64 `json:"failed"`  // all other calls that failed
}

// A Configuration states whether the target's configuration is saved for the target's next start.
type Configuration string

// These are the states of a target's configuration.
const (
	Saved   Configuration = "saved"
	Unsaved Configuration = "unsaved"  // there are unsaved changes
	NotKept Configuration = "not-kept" // the proxy does not save the configuration (target.save)
)

// These are the thresholds of warnings.
const (
	nearlyFull  = 0.9
	expiresSoon = 14 * 24 * time.Hour
)

// NewStatus returns a Status. metrics contains the proxy's metrics in Prometheus' text format, or
// is "".
func NewStatus(f *figures.Figures, metrics string) (*Status, error) {
	s := &Status{Time: f.Taken.UTC(), Up: f.Up, State: f.Phase, Release: f.Release, Stores: []Store{}, Warnings: []string{}}
	switch {
	case f.Phase == "startup":
		s.warn("the target waits for framework_start_init")
	case !f.Up:
		s.warn("the target is unreachable")
	}
	if !f.Started.IsZero() {
		s.Started = new(f.Started.UTC())
	}
	for _, one := range f.Stores {
		s.Stores = append(s.Stores, Store{one.Name, one.Size(), one.FreeBytes(), one.Committed, one.Volumes, one.Snapshots})
		s.Volumes, s.Snapshots = s.Volumes+one.Volumes, s.Snapshots+one.Snapshots
		if used := share(one.Size()-one.FreeBytes(), one.Size()); used >= nearlyFull {
			s.warn("lvstore %s is %.0f %% full", one.Name, 100*used)
		}
	}
	s.Exports = Exports{f.NVMf.Subsystems, f.NVMf.Namespaces, 0, f.ISCSI.TargetNodes}
	for _, n := range f.NVMf.Listeners {
		s.Exports.Listeners += n
	}
	s.Connections = Connections{f.NVMf.Controllers(), f.NVMf.QueuePairs(), f.ISCSI.Connections}
	busy, all := 0.0, 0.0
	for _, r := range f.Reactors {
		busy, all = busy+r.Busy, all+r.Busy+r.Idle
	}
	if s.Cores = len(f.Reactors); all > 0 {
		s.Busy = busy / all
	}
	retries := uint64(0)
	for _, b := range f.Buffers {
		retries += b.Retries
	}
	if retries > 0 {
		s.warn("modules had to wait for free buffers %s since the target started: raise the pools with iobuf_set_options", Plural(int(retries), "time"))
	}
	for _, failed := range f.Failures {
		s.AddFailure(failed.Method, failed.Err)
	}
	return s, s.addMetrics(metrics)
}

// AddFailure records that the result of a method could not be read.
func (s *Status) AddFailure(method string, err error) {
	s.Missing = append(s.Missing, err.Error())
	if spdkrpc.KindOf(err) == spdkrpc.Denied {
		s.denied = append(s.denied, figures.Failure{Method: method, Err: err})
	} else {
		s.broken = append(s.broken, err.Error())
	}
}

func (s *Status) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

// addMetrics adds values from the proxy's own metrics.
func (s *Status) addMetrics(text string) error {
	if text == "" {
		return nil
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(withoutHistograms(text)))
	if err != nil {
		return fmt.Errorf("read the proxy's metrics: %w", err)
	}
	users := map[string]*User{}
	each := func(name string, f func(labels map[string]string, value float64)) {
		for _, m := range families["spdk_proxy_"+name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			f(labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	each("calls_total", func(l map[string]string, v float64) {
		u := users[l["user"]]
		if u == nil {
			u = &User{Name: cmp.Or(l["user"], "(unauthenticated)")}
			users[l["user"]] = u
		}
		u.Calls += uint64(v)
		switch l["outcome"] {
		case "ok":
			return
		case "denied", "over_quota":
			u.Refused += uint64(v)
		}
		u.Failed += uint64(v)
	})
	for _, u := range users {
		s.Users = append(s.Users, *u)
	}
	slices.SortFunc(s.Users, func(a, b User) int { return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name)) })
	each("build_info", func(l map[string]string, _ float64) { s.Proxy = l["version"] })
	s.Configuration = NotKept
	each("target_config_save_pending", func(_ map[string]string, v float64) {
		if s.Configuration = Saved; v > 0 {
			s.Configuration = Unsaved
		}
	})
	each("target_reconnects_total", func(_ map[string]string, v float64) { s.Restarts = new(int(v)) })
	each("target_config_save_failed", func(_ map[string]string, v float64) {
		if v > 0 {
			s.warn("the target's configuration could not be saved: a restart would lose changes")
		}
	})
	each("target_config_missing", func(_ map[string]string, v float64) {
		if v > 0 {
			s.warn("the target lacks %s of its saved configuration", Plural(int(v), "call"))
		}
	})
	each("target_config_not_restorable", func(_ map[string]string, v float64) {
		if v > 0 {
			s.warn("a restart of the target would not restore %s: spdk-proxy call spdkgate_config_get_status names them and what to do", Plural(int(v), "RAID"))
		}
	})
	each("target_config_chosen", func(_ map[string]string, v float64) {
		if v > 0 {
			s.warn("another saved configuration was chosen (spdk-proxy saved use), and the target has not loaded it: restart spdk_tgt")
		}
	})
	each("config_last_reload_successful", func(_ map[string]string, v float64) {
		if v == 0 {
			s.warn("the proxy has refused its new configuration, and uses the old one")
		}
	})
	each("target_loads_what_hosts_write", func(l map[string]string, v float64) {
		if v > 0 && l["accepted"] == "false" {
			s.warn("the target loads lvstores and RAIDs that hosts write into volumes: start it with bdev_auto_examine set to false; until then, tenants' users are refused")
		}
	})
	each("target_shared", func(_ map[string]string, v float64) {
		if v > 0 {
			s.warn("another spdk-proxy serves this target: stop one of them, because calls through two proxies do not wait for each other, and SPDK can lose data")
		}
	})
	each("learning_users", func(_ map[string]string, v float64) {
		if v > 0 {
			s.warn("learning mode, which allows every call: %s", Plural(int(v), "user"))
		}
	})
	expires := func(object string) func(map[string]string, float64) {
		return func(l map[string]string, v float64) {
			if at := time.Unix(int64(v), 0).UTC(); at.Sub(s.Time) < expiresSoon {
				s.warn("%s %s expires on %s", object, cmp.Or(l["certificate"], l["user"]), at.Format(time.DateOnly))
			}
		}
	}
	each("certificate_expiry_timestamp_seconds", expires("certificate"))
	each("certificate_expiry_timestamp_seconds", func(l map[string]string, v float64) {
		if l["certificate"] == "server" {
			s.Certificate = new(time.Unix(int64(v), 0).UTC())
		}
	})
	each("token_expiry_timestamp_seconds", expires("a token of"))
	return nil
}

// withoutHistograms removes histograms, which form most of the text and which addMetrics does not
// need. With many servers, parsing them would take most of the time.
func withoutHistograms(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		name := strings.TrimPrefix(line, "# TYPE ")
		if end := strings.IndexAny(name, "{ "); end >= 0 {
			name = name[:end]
		}
		unread := strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.Contains(name, "_duration_seconds") || strings.HasPrefix(line, "# HELP ")
		if !unread {
			b.WriteString(line)
		}
	}
	return b.String()
}

// JSON formats the status for scripts.
func (s *Status) JSON() ([]byte, error) { return toJSON(s) }

// YAML returns the same as JSON, in YAML.
func (s *Status) YAML() ([]byte, error) { return toYAML(s) }

func toJSON(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}

func toYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err == nil {
		// YAML does not permit control characters
		text, err = yaml.JSONToYAML([]byte(printable.String(string(text))))
	}
	return append([]byte("---\n"), text...), err
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
