// Command kubectl-spdkgate is a kubectl plugin for volumes of the CSI driver spdk-csi. This package
// contains only flags and wiring.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spdkgate/spdkgate/driver/kubectl"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// version is set by the linker. If version is empty, the version of the Go toolchain's build
// information is used.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		code := kubectl.Status(1)
		if !errors.As(err, &code) {
			printError(os.Stderr, err)
		}
		os.Exit(int(code))
	}
}

// printError prints an error, which may contain names and messages from storage servers.
func printError(w io.Writer, err error) {
	fmt.Fprintln(printable.NewWriter(w), "kubectl spdkgate:", err)
}

// escapeOutput makes all commands escape what they print, including what the controller's pod
// prints.
func escapeOutput(cmd *cobra.Command) {
	root := cmd.Root()
	root.SetOut(printable.NewWriter(root.OutOrStdout()))
	root.SetErr(printable.NewWriter(root.ErrOrStderr()))
}

// A plugin contains the values of the flags that all commands share.
type plugin struct {
	client     kubectl.Client
	driverName string
}

// ofKubectl contains the flags that are passed on to kubectl.
var ofKubectl = map[string]string{
	"kubeconfig": "kubeconfig file, as in kubectl",
	"context":    "context of the kubeconfig file, as in kubectl",
	"cluster":    "cluster of the kubeconfig file, as in kubectl",
	"user":       "user of the kubeconfig file, as in kubectl",
	"as":         "user to impersonate, as in kubectl",
}

func command() *cobra.Command {
	p := &plugin{client: kubectl.Client{Program: "kubectl"}}
	cmd := &cobra.Command{
		Use:         "kubectl-spdkgate",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl spdkgate"},
		Short:       "Volumes of spdk-csi and the storage servers that have them",
		Long: `kubectl spdkgate shows the volumes, nodes, snapshots and capacity of the CSI driver spdk-csi, finds
leftovers, cuts off nodes that failed, and moves volumes.

It calls kubectl, with your kubeconfig file and your permissions. What Kubernetes knows needs permission
to list persistentvolumes, volumeattachments, volumesnapshotcontents, csistoragecapacities, csinodes and
nodes. What storage servers know (--live, nodes, doctor, fence, unfence) is asked for in the controller's
pod, and what a node knows (nodes) in its node plugin. Both need permission to create pods/exec in the
driver's namespace. Who has it can read the passwords of the storage servers, and is root on each node.`,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			escapeOutput(cmd)
			p.readFlags(cmd)
		},
	}
	fs := cmd.PersistentFlags()
	for name, usage := range ofKubectl {
		fs.String(name, "", usage)
	}
	fs.StringVar(&p.driverName, "drivername", "csi.spdk.io", "name of the driver, as in its CSIDriver object")
	fs.StringVar(&p.client.Namespace, "driver-namespace", "spdkcsi", "namespace of the driver")
	fs.StringVar(&p.client.Controller, "controller", "deployment/spdkcsi-controller", "workload or pod of the controller")
	fs.StringVar(&p.client.Container, "container", "spdkcsi-controller", "container of the driver in the controller's pod")
	cmd.AddCommand(p.volumesCommand(), p.nodesCommand(), p.snapshotsCommand(), p.replicasCommand(), p.capacityCommand(), p.doctorCommand(), p.fenceCommand("fence"), p.fenceCommand("unfence"),
		p.moveCommand(), p.evacuateCommand())
	return cmd
}

// readFlags collects the flags that are passed on to kubectl.
func (p *plugin) readFlags(cmd *cobra.Command) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, ok := ofKubectl[f.Name]; ok {
			p.client.Flags = append(p.client.Flags, "--"+f.Name+"="+f.Value.String())
		}
	})
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

// formatFlag adds the flag that selects the output format.
func formatFlag(cmd *cobra.Command, f *kubectl.Format) {
	cmd.Flags().VarP(f, "output", "o", "print "+strings.Join(kubectl.Formats, ", ")+", instead of a table")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(kubectl.Formats, cobra.ShellCompDirectiveNoFileComp))
}

// noFiles offers no completions, not even file names.
func noFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}
