package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/kubelet"
	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

// kubernetesFlags contains the node plugin's options that need kubelet or the Kubernetes API.
type kubernetesFlags struct {
	registrationPath string
	registrationDir  string
	startupTaint     string
	topologyLabels   []string
	transports       []string
}

func (f *kubernetesFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.registrationPath, "kubelet-registration-path", "", "path of the endpoint on the node, such as /var/lib/kubelet/plugins/csi.spdk.io/csi.sock: register with kubelet without the sidecar node-driver-registrar. Empty: do not register")
	fs.StringVar(&f.registrationDir, "kubelet-registration-dir", kubelet.DefaultDir, "kubelet's directory plugins_registry, as this process sees it")
	fs.StringSliceVar(&f.transports, "required-transports", nil, "comma-separated list of nvme-tcp, nvme-rdma and iscsi: load their kernel modules at startup, and keep the startup taint until they are loaded")
	fs.StringVar(&f.startupTaint, "startup-taint", "", "taint to remove from the node when the driver is ready there, such as "+kubernetes.StartupTaintKey+". Requires permission to get and patch nodes and to get csinodes. Empty: none")
	fs.StringSliceVar(&f.topologyLabels, "topology-labels", nil, "labels of this node that topology in config.json uses, such as topology.kubernetes.io/zone: those without a value in --topology are read from the Node object. Needs permission to get nodes")
}

// check fails if the options cannot work.
func (f kubernetesFlags) check(node bool) error {
	if !node && (f.registrationPath != "" || f.startupTaint != "" || len(f.topologyLabels)+len(f.transports) > 0) {
		return errors.New("--kubelet-registration-path, --startup-taint, --topology-labels and --required-transports need --node")
	}
	for _, t := range f.transports {
		if err := connect.CheckTransport(t); err != nil {
			return fmt.Errorf("--required-transports: %w", err)
		}
	}
	return nil
}

// register registers the driver with kubelet until ctx ends. The driver must already be listening.
func (f kubernetesFlags) register(ctx context.Context, driverName string, log *slog.Logger) (serve func() error, err error) {
	if f.registrationPath == "" {
		return func() error { return nil }, nil
	}
	r := kubelet.Registration{Driver: driverName, Endpoint: f.registrationPath, Log: log}
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("--kubelet-registration-path: %w", err)
	}
	socket := kubelet.SocketPath(f.registrationDir, driverName)
	listen := func() (net.Listener, error) { return driver.Listen("unix://" + socket) }
	l, err := listen()
	if err != nil {
		return nil, fmt.Errorf("register with kubelet: %w: check that kubelet's plugins_registry is mounted at --kubelet-registration-dir, and that the pod has no sidecar node-driver-registrar", err)
	}
	log.Info("waiting for kubelet to register the driver", "socket", socket)
	return func() error { return r.Serve(ctx, l, listen) }, nil
}

// lookForLabels limits the wait for a new node's labels, and for an unresponsive API server.
const lookForLabels = 5 * time.Minute

// topology adds labels of the Node object to a topology. Without access to the API, it logs which
// labels are missing.
func (f kubernetesFlags) topology(ctx context.Context, node string, given map[string]string, log *slog.Logger) (map[string]string, error) {
	var missing []string
	for _, key := range f.topologyLabels {
		if given[key] == "" {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return given, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookForLabels)
	defer cancel()
	client, err := kubernetes.InCluster()
	var found map[string]string
	if err == nil {
		found, err = client.Labels(ctx, node, missing, log)
	}
	if errors.Is(err, kubernetes.ErrNoAccess) || errors.Is(err, kubernetes.ErrForbidden) {
		log.Error("the node has no topology for these labels: they are not in --topology, and the Node object cannot be read", "labels", missing, "error", err)
		return given, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--topology-labels: %w", err)
	}
	for _, key := range missing {
		if found[key] == "" {
			log.Warn("the node does not have this label: volumes that require it are not reachable from here", "label", key)
			delete(found, key)
		}
	}
	all := maps.Clone(given)
	maps.Copy(all, found)
	return all, nil
}

// modules loads the kernel modules for the required transports.
func (f kubernetesFlags) modules(ctx context.Context) error {
	return connect.LoadModules(ctx, f.transports, connect.Options{})
}

// untaint removes the startup taint once the driver is ready. Without access to the API, it only
// logs that the taint will not be removed.
func (f kubernetesFlags) untaint(ctx context.Context, node, driverName string, maxVolumes int64, log *slog.Logger) {
	if f.startupTaint == "" {
		return
	}
	client, err := kubernetes.InCluster()
	if err != nil {
		log.Error("the startup taint is not removed. Pods wait until it is removed manually", "node", node, "taint", f.startupTaint, "error", err)
		return
	}
	kubernetes.StartupTaint{
		Client: client, Node: node, Driver: driverName, Key: f.startupTaint, NodeID: node, MaxVolumes: maxVolumes, Ready: f.modules, Log: log,
	}.Run(ctx)
}

func drainHookCommand() *cobra.Command {
	var node, driverName string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "drain-hook",
		Short: "Wait until a node that is drained has no volumes left",
		Long: `drain-hook is the preStop hook of the node plugin's container. If the node is being emptied (cordoned,
tainted by an autoscaler, deleted), it waits until kubelet has unmounted the driver's volumes and they
are detached, because nothing can unmount them once the node plugin is gone. Otherwise, as when the
DaemonSet changes, it returns immediately.

It needs permission to get nodes, and to list volumeattachments. If it cannot read the node, it fails
immediately, and the container stops as without a hook. It logs into the log of the container's process 1.

Exit codes: 0 the node has no volumes left, or is not drained; 1 volumes may be left.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if node == "" {
				return errors.New("--nodeid is empty, and so is $NODE_ID")
			}
			out, closeLog := containerLog(cmd.ErrOrStderr())
			defer closeLog()
			log := slog.New(slog.NewTextHandler(out, nil)).With("hook", "preStop")
			err := waitForDrain(cmd.Context(), node, driverName, limit, log)
			if err != nil {
				log.Error("drain hook failed", "error", err)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&node, "nodeid", os.Getenv("NODE_ID"), "name of this node; default $NODE_ID, because Kubernetes does not expand variables in hooks")
	fs.StringVar(&driverName, "drivername", driver.DefaultName, "name of the driver, as in its CSIDriver object")
	fs.DurationVar(&limit, "timeout", 4*time.Minute, "longest wait; terminationGracePeriodSeconds of the pod must be longer")
	return cmd
}

func waitForDrain(ctx context.Context, node, driverName string, limit time.Duration, log *slog.Logger) error {
	client, err := kubernetes.InCluster()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return kubernetes.Drain{Client: client, Node: node, Driver: driverName, Log: log}.Wait(ctx)
}

// containerLog returns a writer to the container's log. Kubernetes shows the output of a hook only
// in an event, and only if the hook fails.
func containerLog(otherwise io.Writer) (w io.Writer, done func()) {
	f, err := os.OpenFile("/proc/1/fd/2", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil || os.Getpid() == 1 {
		return otherwise, func() {}
	}
	return f, func() { _ = f.Close() }
}
