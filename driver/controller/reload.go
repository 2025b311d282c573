package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/outage"
)

// A Reloading is a controller that applies changes to its configuration file while it runs. Each
// call uses the configuration that was in force when the call began. After a reload, unchanged
// targets keep their connections and the cached information about their lvstores.
type Reloading struct {
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedSnapshotMetadataServer
	current atomic.Pointer[Controller]
	load    func() (*config.Config, error)
	metrics *metrics.Metrics
	log     *slog.Logger

	mu     sync.Mutex // serializes reloads
	failed string     // the error that was logged last; empty after a success
}

// NewReloading returns a controller for the configuration that load reads. credentialsFile is as
// for [New]. metrics may be nil.
func NewReloading(load func() (*config.Config, error), credentialsFile string, m *metrics.Metrics, log *slog.Logger) (*Reloading, error) {
	cfg, err := load()
	if err != nil {
		return nil, err
	}
	c, err := New(cfg, credentialsFile, log)
	if err != nil {
		return nil, err
	}
	c.Observe(m)
	r := &Reloading{load: load, metrics: m, log: log}
	r.current.Store(c)
	m.Reloaded(true)
	return r, nil
}

// reloadInterval is the time between two reads of the configuration. Kubernetes updates mounted
// ConfigMaps within about a minute.
const reloadInterval = 5 * time.Second

// Follow reads the configuration every few seconds, and whenever it receives a value from now,
// until ctx ends. It also measures lvstore space and volume I/O for the metrics, and checks targets
// for leftovers.
func (r *Reloading) Follow(ctx context.Context, now <-chan struct{}) {
	var measured sync.WaitGroup
	defer measured.Wait()
	measured.Go(func() { r.measure(ctx) })
	measured.Go(func() { r.check(ctx) })
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-now:
		}
		_ = r.Reload() // logged
	}
}

func (r *Reloading) measure(ctx context.Context) {
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	for {
		c := r.current.Load()
		c.measureSpace(ctx)
		c.measureIO(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Reload reads the configuration and applies it if it is valid and has changed. If the
// configuration is invalid, the controller keeps the previous configuration.
func (r *Reloading) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, err := r.reload()
	r.metrics.Reloaded(err == nil)
	if err != nil {
		if r.failed != err.Error() {
			r.log.Error("configuration not reloaded; the previous configuration remains in force", "error", err)
			r.failed = err.Error()
		}
		return err
	}
	if r.failed = ""; len(changed) > 0 {
		r.log.Info("configuration reloaded", "targets", changed)
	}
	return nil
}

func (r *Reloading) reload() (changed []string, err error) {
	cfg, err := r.load()
	if err != nil {
		return nil, err
	}
	old := r.current.Load()
	next, err := newTargets(cfg)
	if err != nil {
		return nil, err
	}
	if next.equal(old.targets) {
		return nil, nil
	}
	if cfg.HasTopology() != old.HasTopology() {
		return nil, fmt.Errorf("topology was added to or removed from config.json: restart the controller, because csi-provisioner checks for topology only when it starts")
	}
	next.metrics, next.outages = r.metrics, old.targets.outages
	changed, unused := next.takeOver(old.targets)
	warnOf(cfg, r.log)
	c := *old
	c.targets = next
	r.current.Store(&c)
	for _, u := range unused {
		_ = u.https.Close() // calls in flight are not interrupted
	}
	return changed, nil
}

// Close drops the connections to the proxies.
func (r *Reloading) Close() { r.current.Load().Close() }

// Outages returns the log of calls that fail because a target is down.
func (r *Reloading) Outages() *outage.Log { return r.current.Load().targets.outages }

// HasTopology reports whether some targets cannot be reached from every node.
func (r *Reloading) HasTopology() bool { return r.current.Load().HasTopology() }
