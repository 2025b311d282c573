// Command spdk-proxy serves SPDK's RPCs over HTTPS, and allows each user only the calls that the
// configuration permits. This package contains only flags and wiring.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const defaultConfig = "/etc/spdk-proxy/spdk-proxy.yaml"

func main() {
	root := newRoot()
	if args := os.Args[1:]; isScript(root, args) {
		root.SetArgs(append([]string{scriptCommand}, args...))
	}
	if err := root.Execute(); err != nil {
		printError(os.Stderr, err)
		os.Exit(exitCode(err))
	}
}

// printError prints an error, and escapes names and messages from the target.
func printError(w io.Writer, err error) {
	fmt.Fprintf(printable.NewWriter(w), "spdk-proxy: %v\n", err)
}

// escapeOutput escapes unsafe characters in a command's output.
func escapeOutput(cmd *cobra.Command, _ []string) {
	root := cmd.Root()
	root.SetOut(printable.NewWriter(root.OutOrStdout()))
	root.SetErr(printable.NewWriter(root.ErrOrStderr()))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "spdk-proxy",
		Short: "Serve SPDK's RPCs over HTTPS, with authentication and authorization",
		Long: `spdk-proxy runs beside spdk_tgt, whose RPC socket has no access control, and
serves JSON-RPC over HTTPS. It authenticates and authorizes each call, validates
it against the schema of SPDK's RPCs, passes it to SPDK, and logs it.`,
		Example: `  # Set a password, check the configuration, start the service.
  spdk-proxy hash-password --out /etc/spdk-proxy/secrets/admin.hash
  spdk-proxy check-config ` + defaultConfig + `
  systemctl enable --now spdk-proxy

  # Call a method through the proxy, or directly at SPDK's socket.
  spdk-proxy call --url https://storage1:9009 --user admin --ca tls.crt bdev_get_bdevs name=lvs0/vol1
  spdk-proxy call --socket /var/tmp/spdk.sock spdk_get_version

  # The command line of SPDK's rpc_http_proxy.py works unchanged.
  spdk-proxy 0.0.0.0 9009 USER PASSWORD -s /var/tmp/spdk.sock -c server.pem`,
		Version:       versionText(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRun: escapeOutput,
	}
	root.SetVersionTemplate(versionLine())
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w: see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(newServe(), newCheckConfig(), newHashPassword(), newToken(), newCall(), newCheckLvstore(), newPolicy(), newSchema(), newReload(), newProfile(), newGrantSocket(), newKeepKeys(), newHandOverKeys(), newSaved(), newThaw(), newExport(), newUnexport(), newExports(), newStatus(), newTop(), newFleet(), newWatch(), newVersion(), newScript())
	root.AddCommand(extraCommands...)
	return root
}

// extraCommands are commands for unreleased builds; see man.go.
var extraCommands []*cobra.Command

// knownCommand returns an error for an unknown command.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	root.SuggestionsMinimumDistance = 2
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("unknown command %q: did you mean %s?", args[0], near[0])
	}
	return usage("unknown command %q: see `spdk-proxy --help`", args[0])
}

// isScript reports whether the arguments are a command line of rpc_http_proxy.py: HOST PORT USER
// PASSWORD instead of a command, with -s and -c anywhere.
func isScript(root *cobra.Command, args []string) bool {
	var positional []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-s" || a == "-c":
			i++
		case strings.HasPrefix(a, "-s"), strings.HasPrefix(a, "-c"):
		case strings.HasPrefix(a, "-"):
			return false
		default:
			positional = append(positional, a)
		}
	}
	if len(positional) < 2 || slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == positional[0] }) {
		return false
	}
	_, err := strconv.ParseUint(positional[1], 10, 16)
	return err == nil
}

// A usageError reports a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// These are the exit codes. The help texts of call, check-lvstore and fleet list them.
const (
	exitFailed         = 1
	exitUsage          = 2
	exitUnreachable    = 3
	exitOutcomeUnknown = 4
	exitDenied         = 5
	exitDamaged        = 6
	exitLimited        = 7
	exitAttention      = 8
)

func exitCode(err error) int {
	var misused usageError
	var misusedSchema schemacmd.UsageError
	if errors.As(err, &misused) || errors.As(err, &misusedSchema) {
		return exitUsage
	}
	if errors.Is(err, errDamaged) {
		return exitDamaged
	}
	if errors.As(err, new(attentionError)) {
		return exitAttention
	}
	var refused *spdkrpc.Error
	if errors.As(err, &refused) && (refused.Code == jsonrpc.CodeTooMany || refused.Code == jsonrpc.CodeTooManyLogins) {
		return exitLimited
	}
	switch spdkrpc.KindOf(err) {
	case spdkrpc.Unreachable:
		return exitUnreachable
	case spdkrpc.OutcomeUnknown:
		return exitOutcomeUnknown
	case spdkrpc.Denied:
		return exitDenied
	}
	return exitFailed
}
