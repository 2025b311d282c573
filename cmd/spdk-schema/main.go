// Command spdk-schema shows, checks and exports the schema of SPDK's RPCs, for developers who write
// SPDK clients that do not use spdk-proxy. This package contains only flags and wiring.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(printable.NewWriter(os.Stderr), "spdk-schema:", err)
		os.Exit(exitCode(err))
	}
}

const (
	exitFailed = 1
	exitUsage  = 2
)

func exitCode(err error) int {
	var misused schemacmd.UsageError
	if errors.As(err, &misused) {
		return exitUsage
	}
	return exitFailed
}

func command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spdk-schema",
		Short: "Show, check and export the schema of SPDK's RPCs",
		Long: `spdk-schema shows SPDK's JSON-RPC methods: their parameters, results, errors and
units, and the releases that have them. It checks recorded calls and configuration
files, compares the schema with a live target, and exports it for code generators.

Exit codes: 0 success; 1 failure, or violations or differences were found; 2 wrong
command line.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) { // recordings and targets may contain any characters
		root := cmd.Root()
		root.SetOut(printable.NewWriter(root.OutOrStdout()))
		root.SetErr(printable.NewWriter(root.ErrOrStderr()))
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return schemacmd.UsageError{Err: fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath())}
	})
	schemacmd.Add(cmd, "spdk-schema", &target{})
	return cmd
}

// target is spdk_tgt's own socket.
type target struct{ socket string }

func (t *target) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.socket, "socket", "/var/tmp/spdk.sock", "the target's RPC socket")
}

func (*target) Flags() string { return "--socket" }

func (t *target) Connect() (schemacmd.Connection, error) { return spdkrpc.NewSocket(t.socket), nil }
