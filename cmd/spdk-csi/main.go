// Command spdk-csi is the CSI driver for SPDK. It contains the controller, which creates and
// exports volumes through spdk-proxy, and the node plugin, which attaches and mounts them. This
// package contains only flags and wiring.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// version is set by the linker. If it is empty, the program uses the version in its Go build
// information.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(os.Stderr).ExecuteContext(ctx); err != nil {
		code := exitCode{1, err}
		if errors.As(err, &code); code.err != nil {
			printError(os.Stderr, err)
		}
		os.Exit(code.code)
	}
}

type flags struct {
	controller, node     bool
	metadata             bool
	endpoint             string
	nodeID, driverName   string
	topology             string
	maxVolumes           int64
	allowLoop            bool
	stateDir             string
	healthInterval       time.Duration
	nvme                 connect.NVMeOptions
	kubernetes           kubernetesFlags
	replication          replicationFlags
	events               eventFlags
	logLevel, logFormat  string
	verbosity            int
	slowAfter, drainTime time.Duration
	metricsAddress       string
	metricsTokenFile     string
}

// printError prints an error, which may contain names and messages from targets.
func printError(w io.Writer, err error) {
	fmt.Fprintln(printable.NewWriter(w), "spdk-csi:", err)
}

// escapeOutput makes every command escape its output.
func escapeOutput(cmd *cobra.Command, _ []string) {
	root := cmd.Root()
	root.SetOut(printable.NewWriter(root.OutOrStdout()))
	root.SetErr(printable.NewWriter(root.ErrOrStderr()))
}

func command(logs io.Writer) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "spdk-csi --controller | --node | --snapshot-metadata [flags]",
		Short: "CSI driver for SPDK",
		Long: `spdk-csi is the CSI driver for SPDK targets behind spdk-proxy.

The controller (--controller) creates, exports, snapshots and deletes volumes. It runs with the
sidecars provisioner, attacher, resizer and snapshotter, whose leader election selects one of
several replicas, and reads
  config.json   the targets: $SPDKCSI_CONFIG, or /etc/spdkcsi-config/config.json
  secret.json   the users for them, from the secret of each CSI call (StorageClass parameters
                csi.storage.k8s.io/provisioner-secret-name and so on). Calls without a secret use
                $SPDKCSI_SECRET, or /etc/spdkcsi-secret/secret.json. Without this file,
                ListVolumes, GetCapacity and ControllerGetVolume are not supported.

The node plugin (--node) runs on every node, as root, and attaches volumes over NVMe/TCP,
NVMe/RDMA or iSCSI, formats and mounts them. It needs no configuration and no secrets, because the
controller decides for each volume which node may connect to it.

With --snapshot-metadata, the process serves only CSI's SnapshotMetadata, for the sidecar
csi-snapshot-metadata in a pod of its own. It reads the same files as the controller, which serves
SnapshotMetadata as well. It creates, changes and deletes nothing.

The controller and the node plugin may run in one process, and may be stopped at any time. The
controller keeps no state. It applies changes of config.json and of the CA within seconds, or at
once on SIGHUP. The node only records which volumes were used on it and must not be formatted again.`,
		Example: `  spdk-csi --controller --endpoint unix:///csi/csi.sock
  spdk-csi --node --nodeid "$NODE_NAME" --endpoint unix:///csi/csi.sock`,
		Version:       versionText(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, logs) },

		PersistentPreRun: escapeOutput,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.controller, "controller", false, "serve the controller service")
	fs.BoolVar(&f.node, "node", false, "serve the node service")
	fs.BoolVar(&f.metadata, "snapshot-metadata", false, "serve only SnapshotMetadata, without the controller service")
	fs.StringVar(&f.endpoint, "endpoint", "unix://tmp/spdkcsi.sock", "UNIX socket to serve CSI on")
	fs.StringVar(&f.nodeID, "nodeid", "", "id of this node, its name in the cluster (required with --node)")
	fs.StringVar(&f.driverName, "drivername", driver.DefaultName, "name of the driver, as in its CSIDriver object")
	fs.StringVar(&f.topology, "topology", "", "comma-separated labels of this node that topology in config.json uses, such as topology.kubernetes.io/zone=a. Labels without a value are skipped")
	fs.Int64Var(&f.maxVolumes, "max-volumes-per-node", 0, "maximum number of volumes on a node; 0: no limit")
	fs.StringVar(&f.stateDir, "node-state-dir", "", "persistent directory in which the node records the volumes that must not be formatted again. Empty: the directory of the endpoint")
	fs.DurationVar(&f.healthInterval, "node-health-interval", 30*time.Second, "how often the node checks the connections and file systems of its volumes, and restores connections that the kernel has given up on; 0: never")
	fs.BoolVar(&f.allowLoop, "node-allow-loop", false, "attach volumes of simulated targets as loop devices: for tests and the demo, never for real data")
	fs.DurationVar(&f.nvme.CtrlLossTimeout, "nvme-ctrl-loss-timeout", 10*time.Minute, "how long the kernel tries to reconnect to a lost target before it fails I/O and removes the device; negative: unlimited")
	fs.DurationVar(&f.nvme.ReconnectDelay, "nvme-reconnect-delay", 2*time.Second, "pause between two attempts to reconnect to a lost target")
	fs.DurationVar(&f.nvme.KeepAlive, "nvme-keep-alive", 5*time.Second, "time after which a target that does not respond counts as lost")
	fs.DurationVar(&f.nvme.FastIOFail, "nvme-fast-io-fail", 0, "fail I/O when the target has been lost for this long, even while the kernel still tries to reconnect; 0: never")
	fs.IntVar(&f.nvme.IOQueues, "nvme-io-queues", 0, "number of I/O queues per connection; 0: one per CPU")
	f.kubernetes.add(fs)
	f.replication.add(fs)
	f.events.add(fs)
	fs.StringVar(&f.metricsAddress, "metrics-address", "", "address and port to serve metrics on, at /metrics: a loopback address such as 127.0.0.1:9810, or any with --metrics-token-file. Empty: none")
	fs.StringVar(&f.metricsTokenFile, "metrics-token-file", "", "file with the bearer token that callers of --metrics-address must send; it is read for each request. The token is sent unencrypted")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error; debug logs each request, without its secrets")
	fs.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fs.DurationVar(&f.slowAfter, "slow-call-after", 30*time.Second, "log calls that take longer than this")
	fs.DurationVar(&f.drainTime, "drain-timeout", 20*time.Second, "how long to wait for calls in flight when stopping")
	fs.IntVar(&f.verbosity, "v", 0, "spdk-csi's log level: 5 and more is debug")
	_ = fs.MarkHidden("v")
	cmd.MarkFlagsMutuallyExclusive("snapshot-metadata", "controller")
	cmd.MarkFlagsMutuallyExclusive("snapshot-metadata", "node")
	cmd.AddCommand(doctorCommand(doctor.LongestCall), fenceCommand(), unfenceCommand(), moveCommand(), inventoryCommand(), replicaCommand(), nodeStatusCommand(), drainHookCommand(), uninstallCheckCommand())
	return cmd
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// lingerForSidecars is longer than the time between a sidecar's calls for the same volume.
const lingerForSidecars = 2 * time.Second

// logKubernetes ensures that the global logger of the Kubernetes libraries is set only once per
// process.
var logKubernetes sync.Once

func run(ctx context.Context, f flags, logs io.Writer) error {
	if !f.controller && !f.node && !f.metadata {
		return errors.New("nothing to serve: specify --controller, --node or both, or --snapshot-metadata (see --help)")
	}
	if err := f.kubernetes.check(f.node); err != nil {
		return err
	}
	if err := f.replication.check(f.controller || f.node); err != nil {
		return err
	}
	if err := f.events.check(f.controller); err != nil {
		return err
	}
	if f.verbosity >= 5 {
		f.logLevel = "debug"
	}
	log, err := logger(logs, f.logLevel, f.logFormat)
	if err != nil {
		return err
	}
	logKubernetes.Do(func() { klog.SetSlogLogger(log) }) // used by the mount library
	server := driver.Server{
		Identity: &driver.Identity{Name: f.driverName, Version: versionText()},
		Log:      log, SlowAfter: f.slowAfter, Drain: f.drainTime,
	}
	if f.metricsAddress != "" {
		server.Metrics = metrics.New(versionText())
	}
	if f.controller || f.metadata {
		c, err := newController(server.Metrics, log)
		if err != nil {
			return err
		}
		defer c.Close()
		if f.replication.enabled && f.controller {
			witnesses, err := f.replication.witnesses()
			if err != nil {
				return err
			}
			c.SetWitnesses(witnesses)
		}
		if err := f.events.start(ctx, c, f.replication.accountDir, f.driverName, log); err != nil {
			return err
		}
		go c.Follow(ctx, hangups(ctx))
		server.Metadata, server.Identity.Topology, server.Outages = c, c.HasTopology(), c.Outages()
		if f.controller {
			server.Controller, server.Groups, server.Linger = c, c, lingerForSidecars
		}
	}
	if f.node {
		n, err := newNode(ctx, f, server.Metrics, log)
		if err != nil {
			return err
		}
		defer n.start(ctx, f.drainTime, log)()
		server.Node, server.Identity.Topology = n.Node, server.Identity.Topology || f.topology != "" || len(f.kubernetes.topologyLabels) > 0
	}
	l, err := driver.Listen(f.endpoint)
	if err != nil {
		return err
	}
	if server.Metrics != nil {
		scrapes, err := server.Metrics.Serve(f.metricsAddress, f.metricsTokenFile, log)
		if err != nil {
			return errors.Join(fmt.Errorf("--metrics-address: %w", err), l.Close())
		}
		defer func() { _ = scrapes.Close() }()
	}
	log.Info("serving CSI", "endpoint", l.Addr().String(), "driver", f.driverName, "version", versionText(), "controller", f.controller, "node", f.node, "snapshot_metadata", f.controller || f.metadata)
	err = serve(ctx, f, server, l, log)
	log.Info("stopped")
	return err
}

// serve serves CSI until ctx ends, and runs the node plugin's other tasks.
func serve(ctx context.Context, f flags, server driver.Server, l net.Listener, log *slog.Logger) error {
	if !f.node {
		return server.Serve(ctx, l)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	register, err := f.kubernetes.register(ctx, f.driverName, log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	var others sync.WaitGroup
	var refused error
	others.Go(func() {
		if refused = register(); refused != nil {
			stop()
		}
	})
	others.Go(func() {
		if err := f.kubernetes.modules(ctx); err != nil {
			log.Error("volumes cannot be used on this node", "error", err)
		}
		f.kubernetes.untaint(ctx, f.nodeID, f.driverName, f.maxVolumes, log)
	})
	err = server.Serve(ctx, l)
	stop()
	others.Wait()
	return errors.Join(refused, err)
}

func logger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	w = printable.NewWriter(w) // JSON does not escape all characters that control a terminal
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", format)
}

func newController(m *metrics.Metrics, log *slog.Logger) (*controller.Reloading, error) {
	credentials, err := config.CredentialsFile()
	if err != nil {
		return nil, err
	}
	return controller.NewReloading(config.Load, credentials, m, log)
}

// hangups returns a channel that receives a value after each SIGHUP, which asks the process to
// reload its configuration now.
func hangups(ctx context.Context) <-chan struct{} {
	signals, asked := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			select {
			case <-ctx.Done():
				return
			case asked <- struct{}{}:
			}
		}
	}()
	return asked
}
