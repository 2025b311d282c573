package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Console configures the console, which is the web page for administrators, and its sessions. In
// YAML, it may also be just true or false.
type Console struct {
	Enabled bool `yaml:"enabled" short:"yes"`
	// A session ends when it has not been used for Idle, or Lifetime after sign-in, whichever comes
	// first.
	Idle     Duration `yaml:"idle"`
	Lifetime Duration `yaml:"lifetime"`
	// Grafana is the URL of a Grafana dashboard to which the console links. Its query string may
	// contain the placeholders in GrafanaPlaceholders.
	Grafana string `yaml:"grafana"`
}

// GrafanaPlaceholders lists the placeholders in Console.Grafana: the name, UUID and lvstore of the
// volume whose dashboard is opened.
var GrafanaPlaceholders = []string{"{volume}", "{uuid}", "{store}"}

// UnmarshalYAML reads the keys, or a boolean that enables the console.
func (c *Console) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&c.Enabled)
	}
	type plain Console
	return n.Decode((*plain)(c))
}

// These constants are the limits of Idle and Lifetime. A shorter time would end a session between
// two clicks, and a longer time would hardly limit it.
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
	return validateGrafana(c.Console.Grafana)
}

// validateGrafana returns an error unless template is "" or the URL of a web page.
func validateGrafana(template string) error {
	if template == "" {
		return nil
	}
	u, err := url.Parse(template)
	switch {
	case err != nil:
		return errors.New("console.grafana is not a URL, such as https://grafana.example/d/spdk?var-volume={volume}")
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return errors.New("console.grafana must begin with https:// or http://, and a host")
	case u.User != nil:
		return errors.New("console.grafana must not contain a user or password: every user of the console sees the URL")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("console.grafana has a query that is not valid, such as an incomplete % escape")
	}
	rest := u.Scheme + u.Host + u.Path + u.Fragment
	for key, all := range values {
		rest += key
		for _, value := range all {
			for _, known := range GrafanaPlaceholders {
				value = strings.ReplaceAll(value, known, "")
			}
			rest += value
		}
	}
	if strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("console.grafana may contain %s, in values of its query only", strings.Join(GrafanaPlaceholders, ", "))
	}
	return nil
}
