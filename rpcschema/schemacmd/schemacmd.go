// Package schemacmd implements the commands of spdk-schema, which spdk-proxy also offers as
// `spdk-proxy schema`. The package must not depend on how a target is reached: its caller provides
// a [Target].
package schemacmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/check"
	"github.com/spdkgate/spdkgate/rpcschema/drift"
	"github.com/spdkgate/spdkgate/rpcschema/page"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ErrFound means that a command has printed violations or differences.
var ErrFound = errors.New("violations or differences were found: see above")

// A UsageError reports an invalid command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e UsageError) Unwrap() error { return e.Err }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// A Target is the running target that the drift command compares with the schema.
type Target interface {
	// AddFlags adds the flags for the target's address to cmd.
	AddFlags(cmd *cobra.Command)
	// Flags names these flags in help texts, such as "--socket".
	Flags() string
	// Connect returns a connection to the target that the flags specify.
	Connect() (Connection, error)
}

// A Connection is a Caller that can be closed.
type Connection interface {
	spdkrpc.Caller
	Close() error
}

// Add adds the commands to parent. Examples in their help begin with program, such as spdk-schema.
func Add(parent *cobra.Command, program string, target Target) {
	for _, cmd := range []*cobra.Command{newList(), newShow(), newCheck(), newDrift(target), newExport()} {
		cmd.Example = strings.ReplaceAll(cmd.Example, placeholder, program)
		parent.AddCommand(cmd)
	}
}

// placeholder stands for the program's name in examples.
const placeholder = "PROGRAM"

// releaseFlag adds --spdk-version.
func releaseFlag(cmd *cobra.Command, r *ReleaseFlag) {
	cmd.Flags().Var(r, "spdk-version", "omit methods and members that this release, such as v26.05, does not have")
	_ = cmd.RegisterFlagCompletionFunc("spdk-version", cobra.NoFileCompletions)
}

// ReleaseFlag is a flag whose value is a release of SPDK.
type ReleaseFlag struct{ rpcschema.Release }

// String returns the release, or "" if it is not set.
func (r *ReleaseFlag) String() string {
	if !r.Known() {
		return ""
	}
	return r.Release.String()
}

// Set parses a release such as v26.05.
func (r *ReleaseFlag) Set(s string) (err error) {
	r.Release, err = rpcschema.ParseRelease(s)
	return err
}

// Type returns the flag's type for help texts.
func (*ReleaseFlag) Type() string { return "release" }

func newList() *cobra.Command {
	var r ReleaseFlag
	cmd := &cobra.Command{
		Use:   "list [GLOB]",
		Short: "List methods, one per line",
		Example: `  PROGRAM list
  PROGRAM list 'bdev_lvol_*' --spdk-version v24.01`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			glob := "*"
			if len(args) > 0 {
				glob = args[0]
			}
			all, err := rpcschema.Default().Match(glob)
			if err != nil {
				return UsageError{err}
			}
			var found []*rpcschema.Method
			for _, m := range all {
				if m.Has(r.Release) {
					found = append(found, m)
				}
			}
			if len(found) == 0 {
				return usage("no method matches %s: without a pattern, list prints all methods", glob)
			}
			return page.List(cmd.OutOrStdout(), found)
		},
	}
	releaseFlag(cmd, &r)
	return cmd
}

func newShow() *cobra.Command {
	var r ReleaseFlag
	cmd := &cobra.Command{
		Use:               "show METHOD",
		Short:             "Show the parameters, result and errors of a method",
		Example:           `  PROGRAM show bdev_lvol_create`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMethod,
		RunE: func(cmd *cobra.Command, args []string) error {
			doc := rpcschema.Default()
			m, err := doc.Find(args[0], r.Release)
			if err != nil {
				return UsageError{err}
			}
			return page.Show(cmd.OutOrStdout(), doc, m, r.Release)
		},
	}
	releaseFlag(cmd, &r)
	return cmd
}

func newCheck() *cobra.Command {
	var r ReleaseFlag
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check recorded calls and responses against the schema",
		Long: `Check calls and responses against the schema. FILE is one of
  - JSON objects {"method", "params", "result" | "error"}: one, an array, or one per line
  - requests, each followed by its response
  - a configuration file of SPDK (save_config)
A FILE of - is standard input. Each violation is printed on a line with its place.
The exit code is 1 if there are any.`,
		Example: `  scripts/rpc.py save_config | PROGRAM check --spdk-version v26.05 -`,
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
				return fmt.Errorf("%d violations: %w", len(total.Violations), ErrFound)
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
			return nil, UsageError{err}
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	return check.Checker{Document: rpcschema.Default(), Release: r}.Read(file, in)
}

func newDrift(target Target) *cobra.Command {
	var (
		r   ReleaseFlag
		all bool
	)
	cmd := &cobra.Command{
		Use:   "drift [SPDK-SOURCE-TREE]",
		Short: "Compare the schema with a live target, or with SPDK's own schema",
		Long: `Compare the schema with the methods that a live target lists (` + target.Flags() + `), or with
the schema in SPDK's source tree (schema/schema.yaml or schema/schema.json, since
v25.09). Give the source tree, whose file VERSION names the release, or give the file
alone and --spdk-version.

Known differences have a recorded reason and are printed only with --all. The exit
code is 1 if there are other differences.`,
		Example: `  PROGRAM drift --socket /var/tmp/spdk.sock
  PROGRAM drift ~/src/spdk`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := compare(cmd.Context(), target, args, r.Release)
			if err != nil {
				return err
			}
			if err := report.Write(cmd.OutOrStdout(), all); err != nil {
				return err
			}
			if n := len(report.Unexplained()); n > 0 {
				return fmt.Errorf("%d differences: %w", n, ErrFound)
			}
			return nil
		},
	}
	releaseFlag(cmd, &r)
	target.AddFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "also print known differences, each with its reason")
	return cmd
}

func compare(ctx context.Context, target Target, args []string, r rpcschema.Release) (*drift.Report, error) {
	if len(args) > 0 {
		source, err := drift.LoadSource(args[0])
		if err != nil {
			return nil, UsageError{err}
		}
		if !r.Known() {
			r = source.Release
		}
		if !r.Known() {
			return nil, usage("%s does not say which release it belongs to: add --spdk-version, such as --spdk-version v26.05", args[0])
		}
		return drift.Against(rpcschema.Default(), source, r), nil
	}
	caller, err := target.Connect()
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

func completeMethod(_ *cobra.Command, args []string, _ string) (offers []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, m := range rpcschema.Default().Methods() {
			offers = append(offers, cobra.CompletionWithDesc(m.Name, m.Summary))
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
