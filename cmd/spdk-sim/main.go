// Command spdk-sim runs the simulated spdk_tgt on a UNIX socket, for trying out clients of SPDK
// without SPDK, hardware or root. It does not transfer any data. This package contains only flags
// and wiring.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "spdk-sim:", err)
		os.Exit(1)
	}
}

type flags struct {
	target  spdktest.Options
	release string
	faults  []string
	restart time.Duration
	logs    bool
}

func command(out io.Writer) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "spdk-sim [--socket PATH]",
		Short: "Run a simulated SPDK target on a UNIX socket",
		Long: `spdk-sim simulates spdk_tgt: it answers SPDK's JSON-RPC on a UNIX socket as the chosen
release does, for logical volumes, lvstores, NVMe-oF and iSCSI exports, keys, QoS limits
and errors. It needs no root, no hugepages and no devices. It moves no data: hosts
cannot connect to its exports.

Ctrl-C or SIGTERM ends it. After a crash (a fault, or the call spdk_kill_instance) it
starts again with the contents of --data-dir and --config only.

A fault makes calls fail on purpose. It is written METHOD:WHAT[,OPTION…]. METHOD may be
a glob. WHAT is one of
  hang        never reply
  close       close the connection instead of replying
  crash       crash the target
  fail        reply with error -32603; fail=CODE replies with that code
  delay       only wait; needs the option delay=
and the options are
  delay=200ms wait so long first
  skip=3      let 3 calls pass first
  times=2     affect 2 calls (default 1); times=all affects every call
  executed    execute the call as well`,
		Example: `  spdk-sim --socket /tmp/spdk.sock
  spdk-sim --spdk-version v24.01 --data-dir /tmp/spdk-sim
  spdk-sim --fault 'bdev_lvol_create:close,executed' --fault 'bdev_get_bdevs:delay,delay=2s,times=all'`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, out) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.target.Socket, "socket", "spdk.sock", "path of the UNIX socket")
	fl.StringVar(&f.release, "spdk-version", spdktest.Newest.String(), "release of SPDK to simulate")
	fl.StringVar(&f.target.DataDir, "data-dir", "", "directory for lvstores, and for logical volumes as sparse files; without it everything is in memory")
	fl.DurationVar(&f.target.Poll, "poll", 0, "how often to poll the socket; spdk_tgt polls every 4ms. 0: respond immediately")
	fl.BoolVar(&f.target.WaitForRPC, "wait-for-rpc", false, "start in the startup state, until framework_start_init is called")
	fl.BoolVar(&f.target.ExamineListed, "no-auto-examine", false, "start with the option bdev_auto_examine off: bdevs are examined only after bdev_examine")
	fl.StringVar(&f.target.ConfigFile, "config", "", "JSON configuration to load at each start, as save_config writes it")
	fl.BoolVar(&f.target.IgnoreInitErrors, "json-ignore-init-errors", false, "continue when a call of --config fails")
	fl.StringArrayVar(&f.faults, "fault", nil, "make calls fail, as METHOD:WHAT[,OPTION…]; may be repeated")
	fl.DurationVar(&f.restart, "restart-after", time.Second, "how long the target stays down after a crash")
	fl.BoolVar(&f.logs, "log-calls", false, "log each call, without its parameters")
	return cmd
}

// run simulates a target until ctx ends.
func run(ctx context.Context, f flags, out io.Writer) error {
	var err error
	if f.target.Release, err = rpcschema.ParseRelease(f.release); err != nil {
		return fmt.Errorf("--spdk-version: %w", err)
	}
	if f.target.ConfigFile != "" {
		if _, err := os.Stat(f.target.ConfigFile); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
	}
	var faults []spdktest.Fault
	for _, text := range f.faults {
		fault, err := parseFault(text)
		if err != nil {
			return fmt.Errorf("--fault %q: %w", text, err)
		}
		faults = append(faults, fault)
	}
	level := slog.LevelInfo
	if f.logs {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	f.target.Logger, f.target.Faults = log, faults
	target, err := spdktest.Start(f.target)
	if err != nil {
		return err
	}
	log.Info("simulated target ready", "socket", target.Socket(), "release", target.Release())
	return errors.Join(supervise(ctx, target, f.restart, log), target.Close())
}

// supervise restarts the target after each crash, until ctx ends.
func supervise(ctx context.Context, target *spdktest.Target, wait time.Duration, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-target.Down():
		}
		log.Warn("simulated target crashed", "restart_after", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := target.Restart(); err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		log.Info("simulated target restarted")
	}
}
