package config

import (
	"errors"
	"net/netip"
)

// Metrics says where metrics are served in addition to /metrics of the main address.
type Metrics struct {
	Listen string `yaml:"listen"`
}

// validateMetrics refuses addresses that other hosts can reach, because there is neither a password
// nor encryption.
func (c *Config) validateMetrics() error {
	if c.Metrics.Listen == "" {
		return nil
	}
	address, err := netip.ParseAddrPort(c.Metrics.Listen)
	if err != nil || !address.Addr().IsLoopback() {
		return errors.New("metrics.listen must be a loopback address and a port, such as 127.0.0.1:9010, because it needs no password; " +
			"a scraper on another host can use /metrics of the main address, as a user whose roles allow spdkgate_get_metrics")
	}
	return nil
}

// UserNames lists the names of the users.
func (c *Config) UserNames() (names []string) {
	for _, u := range c.Users {
		names = append(names, u.Name)
	}
	return names
}
