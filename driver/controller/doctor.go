package controller

import (
	"context"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/metrics"
)

// DoctorTargets opens all targets for package doctor, with the controller's own credentials.
func (c *Controller) DoctorTargets() ([]doctor.Target, error) {
	credentials, err := config.Credentials(nil, c.credentialsFile, "")
	if err != nil {
		return nil, err
	}
	services, err := c.targets.openEach(c.targets.placement, credentials)
	if err != nil {
		return nil, err
	}
	all := make([]doctor.Target, len(services))
	for i, s := range services {
		all[i] = doctor.Target{Service: s, URL: c.targets.configs[i].RPCURL, Account: credentials[s.Name].Account(), CAFile: c.targets.configs[i].CAFile}
	}
	return all, nil
}

// A checker periodically inspects all targets and reports its findings. A checker changes nothing
// on the targets.
type checker struct {
	wait func(context.Context) error // waits between the two inspections of a check
	// reported holds the findings of the last check, by [doctor.Finding.Key].
	reported map[string]doctor.Finding
	targets  []string
}

// check inspects all targets once, with the controller's own credentials.
func (k *checker) check(ctx context.Context, c *Controller) {
	targets, err := c.DoctorTargets()
	if err != nil {
		c.log.WarnContext(ctx, "targets are not checked", "error", err)
		return
	}
	found, err := doctor.Examination{Targets: targets, Hosts: HostOf, Timeout: c.targets.timeout, Wait: k.wait, Held: c.locks.Held}.Run(ctx)
	if err != nil {
		return // the process is ending
	}
	now := map[string]doctor.Finding{}
	for _, f := range found {
		if _, known := k.reported[f.Key()]; !known {
			c.log.WarnContext(ctx, "check found a problem", "kind", f.Kind, "target", f.Target, "object", f.Object, "problem", f.Problem, "remedy", "spdk-csi doctor")
		}
		now[f.Key()] = f
	}
	for key, f := range k.reported {
		if _, still := now[key]; !still {
			c.log.InfoContext(ctx, "problem resolved", "kind", f.Kind, "target", f.Target, "object", f.Object)
		}
	}
	k.reported = now
	k.count(c.targets.metrics, targets, found)
}

// count records the number of findings for each kind and target in the metrics, and removes the
// metrics of targets that are no longer configured.
func (k *checker) count(m *metrics.Metrics, targets []doctor.Target, found []doctor.Finding) {
	var names []string
	for _, t := range targets {
		names = append(names, t.Name)
		counts := map[string]int{}
		for _, kind := range doctor.Kinds {
			counts[string(kind)] = 0
		}
		for _, f := range found {
			if f.Target == t.Name {
				counts[string(f.Kind)]++
			}
		}
		m.Findings(t.Name, counts)
	}
	for _, former := range k.targets {
		if !slices.Contains(names, former) {
			m.Findings(former, nil)
		}
	}
	k.targets = names
}

// check inspects all targets shortly after the process starts, and then at the configured interval
// until ctx ends.
func (r *Reloading) check(ctx context.Context) {
	k := &checker{wait: func(ctx context.Context) error { return Pause(ctx, doctor.LongestCall) }}
	var last time.Time
	for Pause(ctx, time.Minute) == nil {
		c := r.current.Load()
		if c.checkDue(time.Since(last)) {
			k.check(ctx, c)
			last = time.Now()
		}
	}
}

// checkDue reports whether the targets must be checked, given the time since the last check.
func (c *Controller) checkDue(since time.Duration) bool {
	return c.targets.check > 0 && c.credentialsFile != "" && since >= c.targets.check
}

// Pause waits for the duration d, and fails if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
