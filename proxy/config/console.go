package config

import (
	"errors"
	"time"

	"go.yaml.in/yaml/v3"
)

// Console configures the console, the web page for administrators, and its sessions. In YAML, true
// or false may stand for the whole.
type Console struct {
	Enabled bool `yaml:"enabled" short:"yes"`
	// A session ends when it was not used for Idle, and Lifetime after the sign-in.
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

// Bounds of the time-outs: shorter ones end a session between two clicks, longer ones are no bound.
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
