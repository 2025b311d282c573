package main

import (
	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/service"
)

func newReload() *cobra.Command {
	var selected instance
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration of the running service",
		Long: `Reload the configuration of the running service, and wait for the result. The exit
code is 0 if the service now uses the new configuration. Otherwise the service keeps
the old one, and the error has the reason. systemctl reload spdk-proxy runs this.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return service.Reload(selected.Instance) },
	}
	selected.addTo(cmd.Flags())
	return cmd
}
