package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/kubectl"
)

func (p *plugin) volumesCommand() *cobra.Command {
	var filter kubectl.Filter
	var format kubectl.Format
	var live bool
	cmd := &cobra.Command{
		Use:     "volumes [CLAIM | PERSISTENTVOLUME ...]",
		Aliases: []string{"volume", "vol"},
		Short:   "Show volumes with their claims, storage servers and nodes",
		Long: `volumes shows the PersistentVolumes of the driver: claim, storage server (TARGET), lvstore (LVSTORE), size,
and the nodes to which Kubernetes attaches the volume.

With --live, it also asks the storage servers, through the controller's pod:
  ALLOCATED    what the volume itself occupies, without the snapshots below it; - if SPDK does not tell
  EXPORTED-TO  the nodes that may connect; an NQN or IQN if it is of no node of this cluster
  CONNECTED    the nodes that are connected, with the number of connections; over iSCSI, addresses
  PATHS        the addresses of the storage server that listen for the volume, of all that are configured
  CONDITION    what is adverse
? marks volumes that were not found, or whose storage server could not be read.

Exit codes: 0 done; 1 error, or a storage server could not be read.`,
		Example: `  kubectl spdkgate volumes -n shop
  kubectl spdkgate volumes --node worker-3 --live
  kubectl spdkgate volumes --target storage-1 -o json`,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.Names = args
			volumes, err := p.client.Volumes(cmd.Context(), p.driverName, filter)
			if err != nil {
				return err
			}
			var from inventory.Inventory
			if live && len(volumes) > 0 {
				nodes, err := p.client.Nodes(cmd.Context(), p.driverName)
				if err != nil {
					return err
				}
				if from, err = p.inventory(cmd, filter.Target); err != nil {
					return err
				}
				kubectl.AddLive(volumes, from, nodes)
			}
			if len(volumes) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No volumes were found.")
			}
			if err := kubectl.PrintVolumes(cmd.OutOrStdout(), format, live, volumes); err != nil {
				return err
			}
			return kubectl.Unread(from)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&filter.Namespace, "namespace", "n", "", "only volumes of claims in this namespace")
	fs.StringVar(&filter.Target, "target", "", "only volumes on this storage server")
	fs.StringVar(&filter.Store, "store", "", "only volumes in lvstores of this name")
	fs.StringVar(&filter.Class, "class", "", "only volumes of this StorageClass")
	fs.StringVar(&filter.Node, "node", "", "only volumes that are attached to this node")
	fs.BoolVar(&live, "live", false, "also ask the storage servers")
	formatFlag(cmd, &format)
	return cmd
}

func (p *plugin) inventory(cmd *cobra.Command, target string) (inventory.Inventory, error) {
	if target == "" {
		return p.client.Inventory(cmd.Context())
	}
	return p.client.Inventory(cmd.Context(), target)
}

func (p *plugin) snapshotsCommand() *cobra.Command {
	var namespace string
	var format kubectl.Format
	cmd := &cobra.Command{
		Use:     "snapshots",
		Aliases: []string{"snapshot", "snap"},
		Short:   "Show snapshots with their sources and storage servers",
		Long: `snapshots shows the VolumeSnapshotContents of the driver: VolumeSnapshot, source, storage server, size and
status. -o wide also shows why a snapshot failed. For snapshots that Kubernetes deletes, -o wide, json and yaml
also ask the storage servers, through the controller's pod, what keeps them.

Exit codes: 0 done; 1 error, or a storage server could not be asked.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			snapshots, err := p.client.Snapshots(cmd.Context(), p.driverName, namespace)
			if err != nil {
				return err
			}
			if len(snapshots) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No snapshots were found.")
			}
			var unread error
			if ids := kubectl.Terminating(snapshots); len(ids) > 0 && format != kubectl.Table {
				from, err := p.client.InventoryOfSnapshots(cmd.Context(), ids)
				kubectl.AddUndeletable(snapshots, from)
				unread = errors.Join(err, kubectl.Unread(from))
			}
			return errors.Join(kubectl.PrintSnapshots(cmd.OutOrStdout(), format, time.Now(), snapshots), unread)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only VolumeSnapshots in this namespace")
	formatFlag(cmd, &format)
	return cmd
}

func (p *plugin) replicasCommand() *cobra.Command {
	var filter kubectl.Filter
	var format kubectl.Format
	cmd := &cobra.Command{
		Use:   "replicas [CLAIM | PERSISTENTVOLUME ...]",
		Short: "Show which replicas of replicated volumes are current",
		Long: `replicas shows the volumes that have replicas on two storage servers, as their witnesses record them:
  STATE    New (no node has used the volume yet), Complete (all replicas are current), Degraded (one is not),
           Deleting, or NoWitness (the record of the replicas does not exist)
  CURRENT  the storage servers whose replicas contain every write. If none of them responds, the volume waits
  OTHERS   the other storage servers: rebuilding, discarded by spdk-csi replica keep, or missing
  NODE     the node that may write

Only the node knows whether a volume is waiting: see the log of its node plugin, and the events of the pod.

Exit codes: 0 done; 1 error.`,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			filter.Names = args
			volumes, err := p.client.ReplicatedVolumes(cmd.Context(), p.driverName, filter)
			if err != nil {
				return err
			}
			if len(volumes) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No replicated volumes were found.")
			}
			return kubectl.PrintReplicatedVolumes(cmd.OutOrStdout(), format, volumes)
		},
	}
	cmd.Flags().StringVarP(&filter.Namespace, "namespace", "n", "", "only volumes of claims in this namespace")
	formatFlag(cmd, &format)
	return cmd
}

func (p *plugin) capacityCommand() *cobra.Command {
	var target string
	var format kubectl.Format
	var live bool
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Show the free space of storage servers",
		Long: `capacity shows what Kubernetes knows of the driver's capacity: the CSIStorageCapacity objects, by topology and
StorageClass. There are none unless storage capacity tracking is on (storageCapacity in the CSIDriver).

With --live, it asks the storage servers instead, through the controller's pod, and shows their lvstores:
  FREE         space that nothing occupies
  PROVISIONED  the sum of the sizes of all volumes, and what only snapshots occupy
  LARGEST      the largest thin volume that would be created now, within the limits of config.json

Exit codes: 0 done; 1 error, or a storage server could not be read.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if live {
				from, err := p.inventory(cmd, target)
				if err != nil {
					return err
				}
				if err := kubectl.PrintStores(cmd.OutOrStdout(), format, kubectl.Stores(from)); err != nil {
					return err
				}
				return kubectl.Unread(from)
			}
			all, err := p.client.Capacities(cmd.Context(), p.driverName)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "Kubernetes does not track the capacity of this driver. --live asks the storage servers.")
			}
			return kubectl.PrintCapacities(cmd.OutOrStdout(), format, all)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&live, "live", false, "ask the storage servers")
	fs.StringVar(&target, "target", "", "with --live: only this storage server")
	formatFlag(cmd, &format)
	return cmd
}
