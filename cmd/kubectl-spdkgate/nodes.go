package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/kubectl"
)

func (p *plugin) nodesCommand() *cobra.Command {
	var o kubectl.NodeOptions
	var format kubectl.Format
	cmd := &cobra.Command{
		Use:     "nodes [NODE ...]",
		Aliases: []string{"node"},
		Short:   "Show nodes: whether they are fenced, their volumes and lost paths",
		Long: `nodes shows each node that runs the driver, and each fenced node:
  STATUS      Ready, or what is wrong: NodeNotReady, OutOfService, NoPlugin, PluginNotReady,
              NotRegistered, NotInCluster
  PUBLISHED   volumes that Kubernetes attaches to the node
  FENCED      storage servers on which the node is fenced, or all; and for how long, if they tell
  STAGED      volumes that are staged on the node
  LOST-PATHS  paths that these volumes have lost, and the storage servers to which they lead
  PROBLEMS    what is wrong with these volumes, as in the metric spdk_csi_node_volume_state
  TRANSPORTS  transports whose modules the node's kernel has; others may be loaded when needed
  VERSION     version of the node plugin

It asks the storage servers, through the controller's pod, and each node plugin, in its pod. With
--live=false, it asks only Kubernetes. ? marks what is unknown, because somebody did not answer: then
the command says why, and shows the rest.

Exit codes: 0 done; 1 error, or something is unknown.`,
		Example: `  kubectl spdkgate nodes
  kubectl spdkgate nodes worker-3 -o json
  kubectl spdkgate nodes --live=false`,
		ValidArgsFunction: p.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Names = args
			nodes, failed := p.client.NodeStates(cmd.Context(), p.driverName, o)
			if nodes == nil && failed != nil {
				return failed
			}
			if len(nodes) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No nodes were found.")
			}
			return errors.Join(kubectl.PrintNodes(cmd.OutOrStdout(), format, o.Live, time.Now(), nodes), failed)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.Live, "live", true, "also ask the storage servers and the node plugins")
	fs.DurationVar(&o.Timeout, "node-timeout", 10*time.Second, "time that one node plugin may take")
	fs.StringVar(&o.Selector, "node-selector", "app=spdkcsi-node", "labels of the node plugin's pods")
	fs.StringVar(&o.Container, "node-container", "spdkcsi-node", "container of the driver in the node plugin's pods")
	formatFlag(cmd, &format)
	return cmd
}

// completeNodes completes names of nodes.
func (p *plugin) completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	p.readFlags(cmd)
	nodes, _ := p.client.Nodes(cmd.Context(), p.driverName) // without permission, nothing is completed
	return nodes, cobra.ShellCompDirectiveNoFileComp
}
