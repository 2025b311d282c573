package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/check"
	"github.com/spdkgate/spdkgate/rpcschema/drift"
	"github.com/spdkgate/spdkgate/rpcschema/page"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// errFound ends a command that found what it was to look for: the exit code
// says so, the report has the rest.
var errFound = errors.New("see above")

func newSchema() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Look at SPDK's RPCs as the schema has them",
		Long: `Look at the schema of SPDK's RPCs that this program works by: which methods there
are, what each takes and answers, in which releases; and hold calls, a live target
or SPDK's own schema against it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaList(), newSchemaShow(), newSchemaCheck(), newSchemaDrift(), newSchemaExport())
	return cmd
}

// releaseFlag adds --spdk-version.
func releaseFlag(cmd *cobra.Command, r *release) {
	cmd.Flags().Var(r, "spdk-version", "only what this release has, such as v26.05")
	_ = cmd.RegisterFlagCompletionFunc("spdk-version", cobra.NoFileCompletions)
}

// release is a flag that holds a release of SPDK.
type release struct{ rpcschema.Release }

func (r *release) String() string {
	if !r.Known() {
		return ""
	}
	return r.Release.String()
}

func (r *release) Set(s string) (err error) {
	r.Release, err = rpcschema.ParseRelease(s)
	return err
}

func (*release) Type() string { return "release" }

func newSchemaList() *cobra.Command {
	var r release
	cmd := &cobra.Command{
		Use:   "list [GLOB]",
		Short: "List methods, one a line",
		Example: `  spdk-proxy schema list
  spdk-proxy schema list 'bdev_lvol_*' --spdk-version v24.01`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			glob := "*"
			if len(args) > 0 {
				glob = args[0]
			}
			all, err := rpcschema.Default().Match(glob)
			if err != nil {
				return usageError{err}
			}
			var found []*rpcschema.Method
			for _, m := range all {
				if m.Has(r.Release) {
					found = append(found, m)
				}
			}
			if len(found) == 0 {
				return usage("no method matches %s", glob)
			}
			return page.List(cmd.OutOrStdout(), found)
		},
	}
	releaseFlag(cmd, &r)
	return cmd
}

func newSchemaShow() *cobra.Command {
	var r release
	cmd := &cobra.Command{
		Use:               "show METHOD",
		Short:             "Show what a method takes, answers and fails with",
		Example:           `  spdk-proxy schema show bdev_lvol_create`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			doc := rpcschema.Default()
			m, err := doc.Find(args[0], r.Release)
			if err != nil {
				return usageError{err}
			}
			return page.Show(cmd.OutOrStdout(), doc, m, r.Release)
		},
	}
	releaseFlag(cmd, &r)
	return cmd
}

func newSchemaCheck() *cobra.Command {
	var r release
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Hold recorded calls and answers against the schema",
		Long: `Hold calls and answers against the schema: JSON objects, arrays or lines of
{"method", "params", "result" | "error"}, requests followed by their replies, or
SPDK's configuration files (save_config). - is standard input. Each violation is a
line with its place; the exit code is 1 if there are any.`,
		Example: `  scripts/rpc.py save_config | spdk-proxy schema check --spdk-version v26.05 -`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			total := &check.Report{}
			for _, file := range args {
				report, err := checkFile(file, cmd.InOrStdin(), r.Release)
				if err != nil {
					return err
				}
				total.Add(report)
			}
			if err := total.Write(cmd.OutOrStdout()); err != nil {
				return err
			}
			if len(total.Violations) > 0 {
				return fmt.Errorf("%d violations: %w", len(total.Violations), errFound)
			}
			return nil
		},
	}
	releaseFlag(cmd, &r)
	return cmd
}

func checkFile(file string, stdin io.Reader, r rpcschema.Release) (*check.Report, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usageError{err}
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return check.Checker{Document: rpcschema.Default(), Release: r}.Read(file, in)
}

func newSchemaDrift() *cobra.Command {
	var (
		o   callOptions
		r   release
		all bool
	)
	cmd := &cobra.Command{
		Use:   "drift [SPDK-SOURCE-TREE]",
		Short: "Compare the schema with a live target, or with SPDK's own",
		Long: `Compare the schema with the methods that a live target lists (--socket, or --url of
a proxy), or with the schema that SPDK keeps in its source tree (schema/schema.yaml
or schema/schema.json, since v25.09; name the tree, whose file VERSION says its
release, or the file alone and --spdk-version). Differences that are known, each for
a reason, are left out but with --all. The exit code is 1 if there are others.`,
		Example: `  spdk-proxy schema drift --socket /var/tmp/spdk.sock
  spdk-proxy schema drift ~/src/spdk`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := compare(cmd.Context(), o, args, r.Release)
			if err != nil {
				return err
			}
			if err := report.Write(cmd.OutOrStdout(), all); err != nil {
				return err
			}
			if n := len(report.Unexplained()); n > 0 {
				return fmt.Errorf("%d differences: %w", n, errFound)
			}
			return nil
		},
	}
	releaseFlag(cmd, &r)
	o.addTo(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "known differences, too, each with its reason")
	return cmd
}

func compare(ctx context.Context, o callOptions, args []string, r rpcschema.Release) (*drift.Report, error) {
	if len(args) > 0 {
		source, err := drift.LoadSource(args[0])
		if err != nil {
			return nil, usageError{err}
		}
		if !r.Known() {
			r = source.Release
		}
		if !r.Known() {
			return nil, usage("%s does not say which release it is of: --spdk-version v26.05", args[0])
		}
		return drift.Against(rpcschema.Default(), source, r), nil
	}
	caller, err := o.caller()
	if err != nil {
		return nil, err
	}
	defer func() { _ = caller.Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := spdkrpc.NewClient(caller)
	if r, err = client.Release(ctx); err != nil {
		return nil, err
	}
	names, err := client.RPCGetMethods(ctx, spdkrpc.RPCGetMethodsParams{})
	if err != nil {
		return nil, err
	}
	return drift.Live(rpcschema.Default(), names, r), nil
}

func newSchemaExport() *cobra.Command {
	var r release
	cmd := &cobra.Command{
		Use:     "export",
		Short:   "Write the schema as an OpenRPC document",
		Example: `  spdk-proxy schema export --spdk-version v26.05 > spdk.openrpc.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := rpcschema.Default().Export(r.Release, nil)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	releaseFlag(cmd, &r)
	return cmd
}
