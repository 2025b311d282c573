package config

import (
	"errors"
	"fmt"
	"net/netip"
)

// Metrics says where metrics are served in addition to the main address, and how many.
type Metrics struct {
	Listen string `yaml:"listen"`
	// Volumes is how many volumes have series of their own at /metrics/target, and likewise other
	// bdevs.
	Volumes int `yaml:"volumes"`
}

// maxVolumeSeries bounds Metrics.Volumes.
const maxVolumeSeries = 20000

// validateMetrics refuses addresses that other hosts can reach, because there is neither a password
// nor encryption.
func (c *Config) validateMetrics() error {
	if c.Metrics.Volumes < 0 || c.Metrics.Volumes > maxVolumeSeries {
		return fmt.Errorf("metrics.volumes must be 0 to %d: each volume has eleven series", maxVolumeSeries)
	}
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
