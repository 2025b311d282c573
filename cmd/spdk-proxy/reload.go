package main

import (
	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/service"
)

func newReload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the running service read its configuration anew, and tell what came of it",
		Long: `Have the running service read its configuration anew, and wait for the outcome.
The exit code is 0 if the new configuration holds now. Otherwise it was refused,
the error says why, and the old one stays. systemctl reload spdk-proxy does this.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return service.Reload() },
	}
}
