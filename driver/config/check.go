package config

import (
	"cmp"
	"fmt"
	"time"
)

// A Check configures the periodic check of all targets for leftovers, which only reports.
type Check struct {
	// Interval is the time between two checks, at least 5m, or 0 for no checks; the default is 1h.
	Interval string `json:"interval,omitzero"`
}

const (
	defaultCheckInterval  = "1h"
	shortestCheckInterval = 5 * time.Minute // a check lists all volumes and exports of a target
)

func (c Check) parse() (time.Duration, error) {
	text := cmp.Or(c.Interval, defaultCheckInterval)
	d, err := time.ParseDuration(text)
	if err != nil || d != 0 && d < shortestCheckInterval {
		return 0, fmt.Errorf("check: interval is %q; it must be a time like 1h, at least %s, or 0 for no checks", text, shortestCheckInterval)
	}
	return d, nil
}

func (c Check) check() (problems []error) {
	if _, err := c.parse(); err != nil {
		problems = append(problems, err)
	}
	return problems
}

// Every returns the interval; 0 means no checks.
func (c Check) Every() time.Duration {
	d, _ := c.parse() // cannot fail: Parse has checked it
	return d
}
