package main

import (
	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/service"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve until told to stop",
		Long: `Serve the configuration until SIGTERM or SIGINT; calls under way are finished.

The configuration and the files that it names are read anew after they have
changed, after SIGHUP, and by ` + "`spdk-proxy reload`" + `: users, roles, timeouts, limits
of requests and the certificate change without a call being dropped; what else
has changed takes a restart. A configuration with a mistake is refused, and the
old one stays, as the log and the service's status say.

A socket that systemd passes is served if it is at the configuration's address.

The log goes to standard error: one line for each call, whether it was allowed
or not, without secrets.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			load := func() (*config.Config, error) { return config.Load(path) }
			c, err := load()
			if err != nil {
				return err
			}
			return service.Run(versionOnly(), c, load)
		},
	}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "configuration file")
	return cmd
}
