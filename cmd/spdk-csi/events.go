package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/events"
)

// eventFlags contains the options for Events about the health of volumes.
type eventFlags struct {
	interval time.Duration
}

func (f *eventFlags) add(fs *pflag.FlagSet) {
	fs.DurationVar(&f.interval, "volume-events", 0, "how often the controller checks the health of the volumes of all claims, and writes Events to the claims with problems; 0: never. Requires permission to list PersistentVolumes and to create Events")
}

// check fails if the options cannot work.
func (f eventFlags) check(controls bool) error {
	switch {
	case f.interval == 0:
		return nil
	case !controls:
		return errors.New("--volume-events needs --controller")
	case f.interval < time.Second:
		return fmt.Errorf("--volume-events %v: use 1s or more, or 0 to write no Events", f.interval)
	}
	return nil
}

// start writes Events until ctx ends.
func (f eventFlags) start(ctx context.Context, c *controller.Reloading, accountDir, driverName string, log *slog.Logger) error {
	if f.interval == 0 {
		return nil
	}
	client, err := apiClient(accountDir)
	if err != nil {
		return fmt.Errorf("--volume-events: %w", err)
	}
	instance, err := os.Hostname() // in a pod, this is the pod's name
	if err != nil {
		return err
	}
	r := events.Reporter{API: client, Driver: driverName, Problems: c.Problems, Instance: instance, Interval: f.interval, Log: log}
	go r.Run(ctx)
	return nil
}
