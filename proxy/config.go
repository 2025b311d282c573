package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Config is what the configuration file says, with defaults filled in.
// systemd/spdk-proxy.yaml documents every key.
type Config struct {
	Listen string                `yaml:"listen"`
	TLS    TLSConfig             `yaml:"tls"`
	Target TargetConfig          `yaml:"target"`
	Users  []UserConfig          `yaml:"users"`
	OIDC   []OIDCConfig          `yaml:"oidc"`
	Roles  map[string]RoleConfig `yaml:"roles"`
	// Learning lets every user's calls pass, see config_roles.go.
	Learning bool `yaml:"learning"`
	// Tenants are teams that see nothing but what is theirs.
	Tenants map[string]TenantConfig `yaml:"tenants"`
	Metrics MetricsConfig           `yaml:"metrics"`
	// Compatibility is with clients for other releases of SPDK.
	Compatibility CompatibilityConfig `yaml:"compatibility"`

	Log    LogConfig    `yaml:"log"`
	Limits LimitsConfig `yaml:"limits"`

	file     string   // that it was read from
	dir      string   // which relative paths start at
	warnings []string // what is allowed, but should be known
}

// TLSConfig says which certificate to show: that of two files, or else a
// self-signed one; or none at all.
type TLSConfig struct {
	CertFile          string `yaml:"cert_file"`
	KeyFile           string `yaml:"key_file"`
	SelfSignedDir     string `yaml:"self_signed_dir"`
	InsecurePlaintext bool   `yaml:"insecure_plaintext"`
	ClientCAFile      string `yaml:"client_ca_file"`
	ClientAuth        string `yaml:"client_auth"`
}

// TargetConfig says where spdk_tgt listens and how much it is asked at once.
type TargetConfig struct {
	Socket      string        `yaml:"socket"`
	Connections int           `yaml:"connections"`
	MaxInFlight int           `yaml:"max_in_flight"`
	PeerUsers   []string      `yaml:"peer_users"`
	Timeouts    TimeoutConfig `yaml:"timeouts"`
	Save        SaveConfig    `yaml:"save"`
	Keys        KeysConfig    `yaml:"keys"`
	Freeze      FreezeConfig  `yaml:"freeze"`
	// See config_freeze.go.
	SnapshotsInUse string `yaml:"snapshots_in_use"`
}

// TimeoutConfig says how long SPDK's answer is waited for.
type TimeoutConfig struct {
	Default Duration            `yaml:"default"`
	Methods map[string]Duration `yaml:"methods"`
}

// LogConfig says how the log is written.
type LogConfig struct {
	Format string     `yaml:"format"`
	Level  slog.Level `yaml:"level"`
}

// LimitsConfig bounds what clients may take.
type LimitsConfig struct {
	RequestKiB            int      `yaml:"request_kib"`
	Read                  Duration `yaml:"read"`
	Idle                  Duration `yaml:"idle"`
	Drain                 Duration `yaml:"drain"`
	AuthFailuresPerMinute int      `yaml:"auth_failures_per_minute"`
	// See config_limits.go.
	UserInFlight         int            `yaml:"user_in_flight"`
	UsersInFlight        map[string]int `yaml:"users_in_flight"`
	Connections          int            `yaml:"connections"`
	ConnectionsPerSource int            `yaml:"connections_per_source"`
}

// A Duration is written with its unit, such as 30s or 5m.
type Duration time.Duration

// UnmarshalYAML reads a duration, and refuses a number without a unit.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.ParseDuration(n.Value)
	if err != nil || parsed <= 0 {
		return errors.New("a duration with its unit, such as 30s or 5m")
	}
	*d = Duration(parsed)
	return nil
}

// slowMethods take as long as the data that they touch is large. The values are
// the timeouts that hold unless the configuration names the method.
var slowMethods = map[string]time.Duration{
	"bdev_lvol_create_lvstore":  10 * time.Minute,
	"bdev_lvol_delete_lvstore":  10 * time.Minute,
	"bdev_lvol_grow_lvstore":    10 * time.Minute,
	"bdev_lvol_delete":          10 * time.Minute,
	"bdev_lvol_resize":          10 * time.Minute,
	"bdev_lvol_inflate":         time.Hour,
	"bdev_lvol_decouple_parent": time.Hour,
	"framework_start_init":      10 * time.Minute,
	"framework_wait_init":       10 * time.Minute,
}

// defaults are what holds where the file says nothing.
func defaults() Config {
	return Config{
		Target: TargetConfig{
			Socket: "/var/tmp/spdk.sock", Connections: 4, MaxInFlight: 1024,
			Timeouts: TimeoutConfig{Default: Duration(30 * time.Second)},
			Save:     SaveConfig{Keep: 10}, SnapshotsInUse: snapshotsRefuse,
		},
		Compatibility: CompatibilityConfig{Translate: true},

		Log: LogConfig{Format: "json"},
		Limits: LimitsConfig{
			RequestKiB: 256, Read: Duration(10 * time.Second), Idle: Duration(2 * time.Minute),
			Drain: Duration(20 * time.Second), AuthFailuresPerMinute: 20,
			UserInFlight: 256, Connections: 4096, ConnectionsPerSource: 1024,
		},
	}
}

// LoadConfig reads a configuration file. Its errors name the file, the line
// and what to do, all of them at once; they never repeat a value.
func LoadConfig(path string) (*Config, error) {
	text, err := readTrusted(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noConfig(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c := defaults()
	if err := decodeStrict(text, &c); err != nil {
		return nil, within(path, err)
	}
	c.file, c.dir = path, filepath.Dir(path)
	if err := c.validate(); err != nil {
		return nil, within(path, err)
	}
	c.warnAbout(path)
	return &c, nil
}

func noConfig(path string) error {
	return fmt.Errorf("there is no configuration at %s: copy spdk-proxy.yaml, which explains itself, or name another file with --config", path)
}

// within puts the file's name before each of the errors joined in err.
func within(path string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	var named []error
	for _, e := range joined.Unwrap() {
		named = append(named, within(path, e))
	}
	return errors.Join(named...)
}

// Warnings are what the configuration allows but its author should know.
func (c *Config) Warnings() []string { return c.warnings }

func (c *Config) warnAbout(path string) {
	inline := false
	for _, u := range c.Users {
		inline = inline || u.PasswordHash != ""
	}
	if info, err := os.Stat(path); err == nil && inline && info.Mode().Perm()&0o004 != 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("%s holds password hashes and everybody on this host may read it: chmod o-r %s, or move the hashes into files (password_hash_file)", path, path))
	}
	if info, err := os.Stat(c.TLS.KeyFile); err == nil && info.Mode().Perm()&0o004 != 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("tls.key_file: everybody on this host may read %s: chmod o-r %s, and renew the certificate with another key", c.TLS.KeyFile, c.TLS.KeyFile))
	}
	c.warnAboutCredentials()
	c.warnAboutTokens(time.Now())
	c.warnAboutLearning()
	if c.TLS.InsecurePlaintext {
		c.warnings = append(c.warnings, "tls.insecure_plaintext: passwords and calls travel in the clear for whoever listens on the way")
	}
}

// credentials begins the paths of files that systemd hands over.
const credentials = "$CREDENTIALS_DIRECTORY"

// path makes a path of the configuration absolute: it is relative to the file
// that it stands in, and may begin with $CREDENTIALS_DIRECTORY.
func (c *Config) path(p string) (string, error) {
	if rest, ok := strings.CutPrefix(p, credentials+"/"); ok {
		dir := os.Getenv(credentials[1:])
		if dir == "" {
			return "", fmt.Errorf("%s: systemd sets %s for what LoadCredential= names; to check by hand, set it to the folder of the file", p, credentials)
		}
		return filepath.Join(dir, rest), nil
	}
	if strings.HasPrefix(p, "$") {
		return "", fmt.Errorf("%s: no variable but %s is known here", p, credentials)
	}
	if filepath.IsAbs(p) {
		return p, nil
	}
	return filepath.Join(c.dir, p), nil
}
