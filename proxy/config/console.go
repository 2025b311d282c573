package config

import (
	"errors"
	"time"

	"go.yaml.in/yaml/v3"
)

// Console configures the console, the web page for administrators, and its sessions. In YAML, true
// or false may be given instead.
type Console struct {
	Enabled bool `yaml:"enabled" short:"yes"`
	// A session ends after not being used for Idle, and in any case Lifetime after the sign-in.
	Idle     Duration `yaml:"idle"`
	Lifetime Duration `yaml:"lifetime"`
}

// UnmarshalYAML reads the keys, or only whether the console is enabled.
func (c *Console) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&c.Enabled)
	}
	type plain Console
	return n.Decode((*plain)(c))
}

// Bounds on the timeouts: shorter ones would end a session between two clicks, and longer ones
// would not limit it.
const (
	minConsoleIdle     = Duration(time.Minute)
	maxConsoleLifetime = Duration(7 * 24 * time.Hour)
)

func (c *Config) validateConsole() error {
	switch k := c.Console; {
	case k.Idle < minConsoleIdle:
		return errors.New("console.idle must be at least 1m")
	case k.Lifetime > maxConsoleLifetime:
		return errors.New("console.lifetime must be at most 168h")
	case k.Idle > k.Lifetime:
		return errors.New("console.idle must not be longer than console.lifetime")
	}
	return nil
}
