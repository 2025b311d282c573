package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/monitor"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/node"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A nodeService combines the CSI node service with its background tasks.
type nodeService struct {
	*node.Node
	health *monitor.Monitor // nil if the plugin does not check its volumes
	healer *heal.Healer     // nil if the plugin does not use replicated volumes
}

func newNode(ctx context.Context, f flags, m *metrics.Metrics, log *slog.Logger) (plugin nodeService, err error) {
	if f.nodeID == "" {
		return nodeService{}, errors.New("--node needs --nodeid: the node's name in the cluster, in Kubernetes spec.nodeName")
	}
	connector, err := connect.New(connect.HostOf(f.nodeID), connect.Options{AllowLoop: f.allowLoop, NVMe: f.nvme, Log: log})
	if err != nil {
		return nodeService{}, err
	}
	stateDir := f.stateDir
	if stateDir == "" {
		socket, err := driver.SocketPath(f.endpoint)
		if err != nil {
			return nodeService{}, err
		}
		stateDir = filepath.Dir(socket)
	}
	mounter := mount.New(mount.Options{Log: log})
	n, err := node.New(f.nodeID, f.maxVolumes, stateDir, connector, mounter, log)
	if err != nil {
		return nodeService{}, err
	}
	n.SetEncrypter(luks.New(luks.Options{Prober: mounter, Log: log}))
	topology, err := request.ParseTopology(f.topology)
	if err != nil {
		return nodeService{}, fmt.Errorf("--topology: %w", err)
	}
	if topology, err = f.kubernetes.topology(ctx, f.nodeID, topology, log); err != nil {
		return nodeService{}, err
	}
	if err := n.SetTopology(topology); err != nil {
		return nodeService{}, err
	}
	plugin.Node = n
	if f.replication.enabled {
		if plugin.healer, err = f.replication.healer(connector, stateDir, log); err != nil {
			return nodeService{}, err
		}
		n.SetHealer(plugin.healer)
		m.ReplicatedVolumes(func() []metrics.ReplicatedVolume { return replicatedVolumes(plugin.healer.States()) })
	}
	if f.healthInterval == 0 {
		return plugin, nil
	}
	if f.healthInterval < time.Second {
		return nodeService{}, fmt.Errorf("--node-health-interval %v: use 1s or more, or 0 for no monitor", f.healthInterval)
	}
	plugin.health = monitor.New(monitor.Options{Source: n.Volumes(), Connector: connector, Mounter: mounter, Metrics: m, Log: log, Interval: f.healthInterval, StatusFile: filepath.Join(stateDir, statusFile)})
	n.SetMonitor(plugin.health)
	return plugin, nil
}

// start runs the background tasks until ctx ends or stop is called. stop waits for them.
func (p nodeService) start(ctx context.Context, drainTime time.Duration, log *slog.Logger) (stop func()) {
	stopHealer, stopMonitor := func() {}, func() {}
	if p.healer != nil {
		stopHealer = startHealer(ctx, p.healer, drainTime, log)
	}
	if p.health != nil {
		stopMonitor = startMonitor(ctx, p.health)
	}
	return func() {
		stopMonitor()
		stopHealer()
	}
}

// startMonitor runs a monitor until ctx ends or stop is called. stop waits until the monitor has
// ended.
func startMonitor(ctx context.Context, m *monitor.Monitor) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}
