package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

func inventoryCommand() *cobra.Command {
	var targets, snapshots []string
	var fenced bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "inventory",
		Short: "Print what targets have, as JSON",
		Long: `inventory reads all targets of config.json, with the credentials of the controller, and prints their
lvstores, volumes and exports as JSON. kubectl spdkgate --live shows the same beside what Kubernetes
knows. It changes nothing.

It asks for each volume, and for each export, with one RPC. A target that cannot be read has an
error in its place.

With --snapshot, it prints only whether these snapshots can be deleted, and otherwise what keeps them.
With --fenced, it prints only which nodes are fenced on each target.

Exit codes: 0 all targets were read; 1 error, or some were not.`,
		Example: `  kubectl -n spdkcsi exec deployment/spdkcsi-controller -c spdkcsi-controller -- spdk-csi inventory`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openController(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer c.Close()
			var all inventory.Inventory
			switch {
			case fenced:
				all, err = c.InventoryOfFencedNodes(cmd.Context(), timeout)
			case len(snapshots) > 0:
				all, err = c.InventoryOfSnapshots(cmd.Context(), snapshots, timeout)
			default:
				all, err = c.Inventory(cmd.Context(), targets, timeout)
			}
			if err != nil {
				return err
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			if err := e.Encode(all); err != nil {
				return err
			}
			var unread []error
			for _, t := range all.Targets {
				if t.Error != "" {
					unread = append(unread, errors.New(t.Error))
				}
			}
			return errors.Join(unread...)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&targets, "target", nil, "read only this target of config.json; may be repeated")
	fs.StringSliceVar(&snapshots, "snapshot", nil, "print only why this snapshot, TARGET:UUID, cannot be deleted; may be repeated")
	fs.BoolVar(&fenced, "fenced", false, "print only the fenced nodes")
	fs.DurationVar(&timeout, "timeout", 30*time.Second, "time limit for each target")
	cmd.MarkFlagsMutuallyExclusive("target", "snapshot", "fenced")
	return cmd
}
