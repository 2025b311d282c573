package main

import (
	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
)

func newSchema() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Show and use the schema of SPDK's RPCs",
		Long: `Show the schema of SPDK's RPCs: methods, parameters, results and releases. Compare
calls, a running target or SPDK's own schema with it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	schemacmd.Add(cmd, "spdk-proxy schema", &callOptions{})
	return cmd
}

// AddFlags implements [schemacmd.Target].
func (o *callOptions) AddFlags(cmd *cobra.Command) { o.addTo(cmd) }

// Flags implements [schemacmd.Target]: it names the flags that select the target.
func (o *callOptions) Flags() string { return "--socket, or --url of a proxy" }

// Connect implements [schemacmd.Target].
func (o *callOptions) Connect() (schemacmd.Connection, error) { return o.caller() }
