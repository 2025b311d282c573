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
		Short: "Run the proxy",
		Long: `Run the proxy until SIGTERM or SIGINT. Running calls are finished first.

The proxy reloads the configuration and the files that it names after they change,
after SIGHUP, and, if systemd started it, on ` + "`spdk-proxy reload`" + `. Users,
roles, timeouts, limits of requests and the certificate change without dropping a call;
other changes need a restart. If the new configuration has a mistake, the proxy keeps
the old one, and the log and the service's status report it.

If systemd passes a socket, its address must be the configured one.

The log goes to standard error. It has one line for each call, allowed or refused,
without secrets.`,
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
