package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func newPolicyLearned() *cobra.Command {
	var denied bool
	cmd := &cobra.Command{
		Use:   "learned [LOG]",
		Short: "Make roles of the calls in the log",
		Long: `Make roles of the calls in the log: for each user the methods that were called, and
allowed or let pass for learning (` + "`learning: true`" + ` in the configuration). Users who
called the same get one role. LOG is a file of the JSON log at level info, standard
input unless given. What comes out is YAML for the configuration: read it before
you use it, for it allows whatever was called.`,
		Example: `  journalctl -u spdk-proxy -o cat --since -7d | spdk-proxy policy learned
  spdk-proxy policy learned --denied proxy.log`,
		Args: maximumArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if len(args) == 1 && args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usageError{err}
				}
				defer func() { _ = f.Close() }()
				in = f
			}
			learned, err := auditlog.ReadLearned(in, denied, rpcschema.Default())
			if err != nil {
				return err
			}
			return learned.WriteRoles(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&denied, "denied", false, "calls that were denied, too")
	return cmd
}
