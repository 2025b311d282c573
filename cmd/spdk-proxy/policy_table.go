package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
)

func newPolicyTest() *cobra.Command {
	var (
		o policyOptions
		r schemacmd.ReleaseFlag
	)
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Test the configuration against a table of expected decisions",
		Long: `Test the configuration against a table of expected decisions, to find unintended
effects of a change of roles. FILE is a YAML list; - is standard input:

  - {who: csi, call: bdev_lvol_create, expect: allow}
  - {who: team-a, call: bdev_lvol_create, params: {lvs_name: lvs-b, lvol_name: v, size_in_mib: 1}, expect: deny}
  - {who: monitoring, call: spdk_kill_instance, expect: deny, rule: no rule allows it}

Without params, a row is about the method with any parameters. With params, these must
be valid for SPDK. With rule, that rule must decide. A call that passes only in learning
mode counts as denied.

If decisions differ, the command lists them, and its exit code is 1.`,
		Example: `  spdk-proxy policy test /etc/spdk-proxy/policy-test.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("name the file with the table, or - for standard input: see `spdk-proxy policy test --help`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := o.load()
			if err != nil {
				return err
			}
			text, err := readFile(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			rows, err := dryrun.ReadTable(text)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			failures, err := d.Check(rows, r.Release)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return report(cmd.OutOrStdout(), len(rows), failures)
		},
	}
	o.addTo(cmd)
	cmd.Flags().Var(&r, "spdk-version", "release of the target, such as v26.05, for which parameters are translated")
	_ = cmd.RegisterFlagCompletionFunc("spdk-version", cobra.NoFileCompletions)
	return cmd
}

func report(w io.Writer, rows int, failures []dryrun.Failure) error {
	if len(failures) == 0 {
		_, err := fmt.Fprintf(w, "%d of %d decisions are as expected\n", rows, rows)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LINE\tWHO\tCALL\tEXPECTED\tACTUAL")
	for _, f := range failures {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", f.Line, f.Who, f.Call, f.Expected, f.Became)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return fmt.Errorf("%d of %d decisions are not as expected: %w", len(failures), rows, schemacmd.ErrFound)
}

// readFile reads a file, or standard input if name is "-".
func readFile(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, usageError{err}
	}
	return text, nil
}
