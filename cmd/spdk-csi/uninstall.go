package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

func uninstallCheckCommand() *cobra.Command {
	var driverName string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall-check",
		Short: "Fail if volumes or snapshots of the driver exist",
		Long: `uninstall-check is a hook that runs before the Helm chart is uninstalled. It fails if Kubernetes has
PersistentVolumes or VolumeSnapshotContents of the driver, and then Helm uninstalls nothing. It needs
permission to list persistentvolumes and volumesnapshotcontents.

Exit codes: 0 there are none; 1 there are some, or they could not be listed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := kubernetes.InCluster()
			if err != nil {
				return errUnchecked(err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			left, err := client.Remaining(ctx, driverName)
			if err != nil {
				return errUnchecked(err)
			}
			if err := refuseUninstall(left); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "No volumes or snapshots of %s exist.\n", driverName)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&driverName, "drivername", driver.DefaultName, "name of the driver, as in its CSIDriver object")
	fs.DurationVar(&timeout, "timeout", time.Minute, "time that listing may take")
	return cmd
}

// uninstallAnyway tells the user how to skip the check.
const uninstallAnyway = "to uninstall the driver anyway and keep them, add --no-hooks to helm uninstall"

func errUnchecked(err error) error {
	return fmt.Errorf("cannot determine whether volumes of the driver exist: %w. Nothing was uninstalled: repeat the command; %s", err, uninstallAnyway)
}

// refuseUninstall returns an error if volumes or snapshots still exist.
func refuseUninstall(left kubernetes.Remaining) error {
	var kinds []string
	for _, k := range []struct {
		kind  string
		names []string
	}{{"PersistentVolumes", left.Volumes}, {"VolumeSnapshotContents", left.Snapshots}} {
		if len(k.names) > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s (%s)", len(k.names), k.kind, someOf(k.names)))
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return errors.New("these objects of the driver exist: " + strings.Join(kinds, " and ") + ". Without the driver, nothing deletes them on the storage servers, and pods that use them do not start. " +
		"Nothing was uninstalled: delete the claims and VolumeSnapshots first; " + uninstallAnyway)
}

// someOf returns a string that lists the first few names.
func someOf(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
