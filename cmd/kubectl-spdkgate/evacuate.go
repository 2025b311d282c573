package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/kubectl"
)

func (p *plugin) evacuateCommand() *cobra.Command {
	e := kubectl.Evacuation{Move: kubectl.Move{Poll: 2 * time.Second}}
	var format kubectl.Format
	var runs bool
	cmd := &cobra.Command{
		Use:   "evacuate SERVER --parameter target=OTHER [--run]",
		Short: "Move the volumes on a storage server to other servers",
		Long: `evacuate shows all claims on a storage server, its snapshots, and its volumes without a claim: their size, the
pods that use them, and what would happen to them. It changes nothing.

With --run, it moves the volumes of the claims that no pod uses, one after the other, as kubectl spdkgate move
does. It continues after a failure. With --prepare, it also copies snapshots of the volumes that are in use.
The originals are kept: delete each with kubectl spdkgate move CLAIM --delete-original.

If the command is interrupted or fails, repeat it.

Exit codes: 0 done, and with --run: no claim uses the storage server any more; 1 error, or claims still use it.`,
		Example: `  kubectl spdkgate evacuate storage-1 --parameter target=storage-2
  kubectl spdkgate evacuate storage-1 --parameter target=storage-2 --run`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.Server = args[0]
			e.Client, e.Driver, e.Out, e.Notes = p.client, p.driverName, cmd.OutOrStdout(), cmd.ErrOrStderr()
			plan, err := e.Plan(cmd.Context())
			if err != nil {
				return err
			}
			if err := kubectl.PrintEvacuees(cmd.OutOrStdout(), format, plan); err != nil {
				return err
			}
			if !runs {
				if len(plan) > 0 {
					fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was changed. To move volumes, add --run.")
				}
				return nil
			}
			if err := e.Run(cmd.Context(), plan); err == nil || cmd.Context().Err() == nil {
				return err
			}
			return errors.New("interrupted. A Job that has started goes on; repeat the command to continue")
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	parameterFlag(fs, &e.Move)
	fs.BoolVar(&runs, "run", false, "move the volumes; without this flag, the plan is only shown")
	fs.BoolVar(&e.Prepare, "prepare", false, "copy snapshots of volumes that pods use, to shorten their moves")
	jobFlags(fs, &e.Move)
	formatFlag(cmd, &format)
	cmd.MarkFlagsMutuallyExclusive("run", "output")
	return cmd
}
