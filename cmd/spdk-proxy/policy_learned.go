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
		Short: "Create roles from the calls in the log",
		Long: `Create roles from the calls in the log. For each user, the role has the methods that
the user called, if they were allowed or passed in learning mode (` + "`learning: true`" + ` in
the configuration). Users with the same methods share a role. LOG is a file with the
JSON log at level info; the default is standard input. The output is YAML for the
configuration. Review it before you use it, because it allows every method that was
called, with any parameters. A comment names the users without calls that only learning
mode allowed: their present roles may have conditions, which the new role lacks.`,
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
	cmd.Flags().BoolVar(&denied, "denied", false, "include calls that were denied")
	return cmd
}
