package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Config is the decoded configuration file, with defaults. systemd/spdk-proxy.yaml documents
// every key.
type Config struct {
	Listen string `yaml:"listen"`
	// ListenUnix is a socket for programs on this host; see local.go.
	ListenUnix ListenUnix `yaml:"listen_unix"`
	// LoadBalancers connect on behalf of clients; see balancers.go.
	LoadBalancers LoadBalancers `yaml:"load_balancers"`

	TLS    TLS             `yaml:"tls"`
	Target Target          `yaml:"target"`
	Users  []User          `yaml:"users"`
	OIDC   []OIDC          `yaml:"oidc"`
	Roles  map[string]Role `yaml:"roles"`
	// Learning allows every call by every user, in order to find out which calls are needed; see
	// roles.go.
	Learning bool `yaml:"learning"`
	// Tenants are teams that see only their own objects.
	Tenants map[string]Tenant `yaml:"tenants"`
	Metrics Metrics           `yaml:"metrics"`
	// Console configures the web page for administrators; see console.go.
	Console Console `yaml:"console"`
	// Compatibility applies to clients written for other releases of SPDK.
	Compatibility Compatibility `yaml:"compatibility"`

	Log    Log    `yaml:"log"`
	Limits Limits `yaml:"limits"`

	file     string // path of the configuration file
	dir      string // base directory for relative paths
	warnings []string
}

// Target describes where spdk_tgt listens, and how the proxy uses it.
type Target struct {
	Socket      string   `yaml:"socket"`
	Connections int      `yaml:"connections"`
	MaxInFlight int      `yaml:"max_in_flight"`
	PeerUsers   []string `yaml:"peer_users"`
	Timeouts    Timeouts `yaml:"timeouts"`
	Save        Save     `yaml:"save"`
	Keys        Keys     `yaml:"keys"`
	Freeze      Freeze   `yaml:"freeze"`
	// SnapshotsInUse is one of the values in freeze.go.
	SnapshotsInUse string `yaml:"snapshots_in_use"`
	// AcceptLoadingWhatHostsWrite lets tenants call a target that examines every bdev. Such a
	// target loads lvstores, RAIDs and partitions that hosts have written to volumes.
	AcceptLoadingWhatHostsWrite bool `yaml:"accept_loading_what_hosts_write"`
	// AcceptChangesWithoutCounts permits spdkgate_lvol_changes on releases that do not report the
	// number of clusters in a snapshot (rpcschema.CountsClusters). The metadata cannot be checked
	// against these releases' reports.
	AcceptChangesWithoutCounts bool `yaml:"accept_changes_without_counts"`
}

// Limits contains the limits on the resources that clients may use.
type Limits struct {
	RequestKiB            int      `yaml:"request_kib"`
	Read                  Duration `yaml:"read"`
	Idle                  Duration `yaml:"idle"`
	Drain                 Duration `yaml:"drain"`
	AuthFailuresPerMinute int      `yaml:"auth_failures_per_minute"`
	// These limits apply to users and connections; limits.go checks them.
	UserInFlight         int            `yaml:"user_in_flight"`
	UsersInFlight        map[string]int `yaml:"users_in_flight"`
	UserCallsPerSecond   int            `yaml:"user_calls_per_second"` // 0 means any number
	UsersCallsPerSecond  map[string]int `yaml:"users_calls_per_second"`
	Connections          int            `yaml:"connections"`
	ConnectionsPerSource int            `yaml:"connections_per_source"`
}

// Default returns the default values of all keys.
func Default() Config {
	return Config{
		ListenUnix: ListenUnix{Mode: "0660", Idle: Duration(time.Hour)},
		Target: Target{
			Socket: "/var/tmp/spdk.sock", Connections: 4, MaxInFlight: 1024,
			Timeouts: Timeouts{Default: Duration(30 * time.Second)},
			Save:     Save{Keep: 10}, SnapshotsInUse: SnapshotsRefuse,
		},
		Metrics:       Metrics{Volumes: 1000, IOHistory: true},
		Compatibility: Compatibility{Translate: true},
		Console:       Console{Enabled: true, Idle: Duration(30 * time.Minute), Lifetime: Duration(12 * time.Hour)},

		Log: Log{Format: "json", Calls: CallLog{To: CallsToLog, MaxMiB: 100, Keep: 10}},
		Limits: Limits{
			RequestKiB: 256, Read: Duration(10 * time.Second), Idle: Duration(2 * time.Minute),
			Drain: Duration(20 * time.Second), AuthFailuresPerMinute: 20,
			UserInFlight: 256, Connections: 4096, ConnectionsPerSource: 1024,
		},
	}
}

// Load reads a configuration file. The error joins all mistakes, each with its file, line and
// remedy. It contains no values, because they may be secret.
func Load(path string) (*Config, error) {
	text, err := ReadTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noConfig(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c := Default()
	if err := DecodeStrict(text, &c); err != nil {
		return nil, InFile(path, err)
	}
	c.file, c.dir = path, filepath.Dir(path)
	if err := c.validate(); err != nil {
		return nil, InFile(path, err)
	}
	c.warnAbout(path)
	return &c, nil
}

// LoadWithoutSecrets reads the users, roles and tenants in a configuration file. It neither reads
// the files named in the configuration nor checks other values.
func LoadWithoutSecrets(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noConfig(path)
	}
	if err != nil {
		return nil, err
	}
	c := Default()
	if err := DecodeStrict(text, &c); err != nil {
		return nil, InFile(path, err)
	}
	c.file, c.dir = path, filepath.Dir(path)
	return &c, nil
}

// LoadWhatDecodes decodes as much as possible of a file that Load rejects, so that the caller can
// check the decoded parts. The result must not be used to serve requests.
func LoadWhatDecodes(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := Default()
	_ = yaml.Unmarshal(text, &c) // Load has already reported the errors
	return &c, nil
}

func noConfig(path string) error {
	return fmt.Errorf("there is no configuration at %s: copy spdk-proxy.yaml, which documents every key, or name another file with --config", path)
}

// InFile prefixes each of the errors joined in err with the file's name.
func InFile(path string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	var named []error
	for _, e := range joined.Unwrap() {
		named = append(named, InFile(path, e))
	}
	return errors.Join(named...)
}

// Warnings returns descriptions of settings that are permitted but risky.
func (c *Config) Warnings() []string { return c.warnings }

func (c *Config) warnAbout(path string) {
	inline := false
	for _, u := range c.Users {
		inline = inline || u.PasswordHash != "" || len(u.PasswordHashes) > 0
	}
	if info, err := os.Stat(path); err == nil && inline && info.Mode().Perm()&0o004 != 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("%s contains password hashes, and every user of this host may read it: chmod o-r %s, or move the hashes into files (password_hash_file)", path, path))
	}
	if info, err := os.Stat(c.TLS.KeyFile); err == nil && info.Mode().Perm()&0o004 != 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("tls.key_file: every user of this host may read %s: chmod o-r %s, and renew the certificate with another key", c.TLS.KeyFile, c.TLS.KeyFile))
	}
	c.warnAboutCredentials()
	c.warnAboutTokens(time.Now())
	c.warnAboutLearning()
	c.warnAboutLocal()
	if c.TLS.InsecurePlaintext {
		c.warnings = append(c.warnings, "tls.insecure_plaintext: passwords and calls are sent unencrypted")
	}
}

// Compatibility applies to clients written for releases of SPDK other than the target's.
type Compatibility struct {
	Translate bool `yaml:"translate"`
}
