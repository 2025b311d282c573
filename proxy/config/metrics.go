package config

import (
	"errors"
	"net/netip"
)

// Metrics says where metrics are served besides /metrics of the main
// address.
type Metrics struct {
	Listen string `yaml:"listen"`
}

// validateMetrics refuses to serve others than this host: there is neither a
// password nor encryption.
func (c *Config) validateMetrics() error {
	if c.Metrics.Listen == "" {
		return nil
	}
	address, err := netip.ParseAddrPort(c.Metrics.Listen)
	if err != nil || !address.Addr().IsLoopback() {
		return errors.New("metrics.listen must be a loopback address and a port, such as 127.0.0.1:9010, as whoever reaches it needs no password; " +
			"for a scraper elsewhere leave it out: it is answered at /metrics of the main address, as a user whose roles allow spdkgate_get_metrics")
	}
	return nil
}

func (c *Config) UserNames() (names []string) {
	for _, u := range c.Users {
		names = append(names, u.Name)
	}
	return names
}
