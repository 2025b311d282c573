package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// replicationFlags contains the options for volumes with two replicas.
type replicationFlags struct {
	enabled    bool
	timeout    time.Duration
	accountDir string
}

func (f *replicationFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.enabled, "replication", false, "manage volumes with two replicas, which StorageClasses request with replicas: \"2\" (experimental). Needs the component replication, and on nodes the kernel module dm_mirror")
	fs.DurationVar(&f.timeout, "replica-timeout", 5*time.Second, "how long a storage server may be unresponsive before the node continues without its replica")
	fs.StringVar(&f.accountDir, "service-account-dir", kubernetes.ServiceAccountDir, "directory with the token and the CA for --replication and --volume-events")
}

// check fails if the options cannot work.
func (f replicationFlags) check(serves bool) error {
	switch {
	case f.enabled && !serves:
		return errors.New("--replication needs --controller or --node")
	case f.timeout < time.Second:
		return fmt.Errorf("--replica-timeout %v: use 1s or more", f.timeout)
	}
	return nil
}

// apiClient returns a client of the Kubernetes API that uses the token in accountDir.
func apiClient(accountDir string) (*kubernetes.Client, error) {
	return kubernetes.New(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), accountDir)
}

// witnesses returns a store for the witnesses in the Kubernetes API.
func (f replicationFlags) witnesses() (*witness.Store, error) {
	client, err := apiClient(f.accountDir)
	if err != nil {
		return nil, fmt.Errorf("--replication: %w", err)
	}
	return witness.NewStore(client), nil
}

// healer returns the Healer of this node. The Healer does nothing while another process holds the
// lock in stateDir.
func (f replicationFlags) healer(connector connect.Watcher, stateDir string, log *slog.Logger) (*heal.Healer, error) {
	witnesses, err := f.witnesses()
	if err != nil {
		return nil, err
	}
	lock := heal.NewNodeLock(filepath.Join(stateDir, "replication.lock"))
	return heal.New(heal.Options{Connector: connector, Witnesses: witnesses, Log: log, Grace: f.timeout, Exclusive: lock.Acquire}), nil
}

// replicatedVolumes converts the states of a healer's volumes for the metrics.
func replicatedVolumes(states map[string]heal.State) []metrics.ReplicatedVolume {
	var all []metrics.ReplicatedVolume
	for name, state := range states {
		v := metrics.ReplicatedVolume{Volume: name, InSync: 2, Waiting: state.Waiting, Rebuilt: -1}
		switch {
		case state.Degraded:
			v.InSync = 1
		case state.Problem != "" && !state.Waiting: // the mirror may not be running
			v.InSync = 0
		}
		if state.Regions > 0 {
			v.Rebuilt = float64(state.Synced) / float64(state.Regions)
		}
		all = append(all, v)
	}
	return all
}

// startHealer runs a Healer until ctx ends or stop is called. It first loads the kernel module for
// mirrors, and logs an error if the kernel does not support them. stop waits for the current steps,
// but no longer than limit, because a step may be waiting for a storage server. The next process
// completes interrupted steps.
func startHealer(ctx context.Context, h *heal.Healer, limit time.Duration, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	load := connect.LoadModule(ctx, mirror.Module, connect.Options{})
	if err := mirror.CheckKernel(); err != nil {
		err = errors.Join(err, load)
		log.Error("volumes with two replicas cannot be used on this node", "error", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(limit):
		}
	}
}
