package config

import (
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Timeouts limits how long the proxy waits for SPDK's responses.
type Timeouts struct {
	Default Duration            `yaml:"default"`
	Methods map[string]Duration `yaml:"methods"`
}

// A Duration is written with a unit, such as 30s or 5m.
type Duration time.Duration

// UnmarshalYAML decodes a duration, and rejects numbers without a unit.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	parsed, err := time.ParseDuration(n.Value)
	if err != nil || parsed <= 0 {
		return errors.New("a duration with its unit, such as 30s or 5m")
	}
	*d = Duration(parsed)
	return nil
}

// slowMethods contains default timeouts for methods whose duration depends on the amount of data.
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
	"spdkgate_lvol_changes":     10 * time.Minute,
}

// ByMethod returns the timeouts of all methods to which the general timeout does not apply.
func (t Timeouts) ByMethod(schema *rpcschema.Document) (map[string]time.Duration, error) {
	timeouts := map[string]time.Duration{}
	for name, d := range slowMethods {
		timeouts[name] = max(d, time.Duration(t.Default))
	}
	var wrong []error
	for name, d := range t.Methods {
		if _, err := schema.Find(name, rpcschema.Release{}); err != nil {
			wrong = append(wrong, fmt.Errorf("target.timeouts.methods: %w", err))
		}
		timeouts[name] = time.Duration(d)
	}
	return timeouts, errors.Join(wrong...)
}
