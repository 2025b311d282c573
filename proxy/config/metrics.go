package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// Metrics configures an additional address for metrics, and limits their number.
type Metrics struct {
	Listen string `yaml:"listen"`
	// Volumes is the maximum number of volumes with series of their own at /metrics/target. The
	// same limit applies separately to other bdevs.
	Volumes int `yaml:"volumes"`
	// LatencyHistograms lists the bdevs with latency histograms at /metrics/target. The histograms
	// must be enabled on the target.
	LatencyHistograms []string `yaml:"latency_histograms"`
	// IOHistory makes the proxy keep the I/O rates of bdevs over the last hour.
	IOHistory bool `yaml:"io_history"`
}

// Equal reports whether both configurations are the same.
func (m Metrics) Equal(o Metrics) bool {
	return m.Listen == o.Listen && m.Volumes == o.Volumes && m.IOHistory == o.IOHistory && slices.Equal(m.LatencyHistograms, o.LatencyHistograms)
}

const (
	// maxVolumeSeries is the maximum of Metrics.Volumes.
	maxVolumeSeries = 20000
	// maxLatencyHistograms is the maximum length of Metrics.LatencyHistograms. The proxy reads one
	// histogram every ten seconds, so a histogram is at most 100 s old.
	maxLatencyHistograms = 10
	maxBdevName          = 255 // in bytes
)

// validateMetrics rejects addresses that other hosts can reach, because metrics are served without
// authentication or encryption.
func (c *Config) validateMetrics() error {
	if c.Metrics.Volumes < 0 || c.Metrics.Volumes > maxVolumeSeries {
		return fmt.Errorf("metrics.volumes must be between 0 and %d: each volume adds eleven time series", maxVolumeSeries)
	}
	if err := c.Metrics.validateHistograms(); err != nil {
		return err
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

func (m Metrics) validateHistograms() error {
	if n := len(m.LatencyHistograms); n > maxLatencyHistograms {
		return fmt.Errorf("metrics.latency_histograms has %d names: at most %d are possible, because the proxy reads one of them every ten seconds", n, maxLatencyHistograms)
	}
	for i, name := range m.LatencyHistograms {
		switch {
		case name == "", len(name) > maxBdevName, !printable.Valid(name):
			return fmt.Errorf("metrics.latency_histograms: %q is not the name of a bdev: write a name as bdev_get_bdevs lists it, or LVSTORE/LVOL for a volume, with up to %d bytes and without control characters", name, maxBdevName)
		case slices.Contains(m.LatencyHistograms[:i], name):
			return fmt.Errorf("metrics.latency_histograms lists %q twice: remove one of them", name)
		}
	}
	return nil
}

// UserNames lists the users' names.
func (c *Config) UserNames() (names []string) {
	for _, u := range c.Users {
		names = append(names, u.Name)
	}
	return names
}
