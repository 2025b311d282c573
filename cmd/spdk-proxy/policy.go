package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func newPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show, explain, test and learn who may call what",
		Long: `Show, explain, test and learn who may call what.

These commands read a configuration file. They contact no proxy and no target, change
nothing, and do not read the secrets of users. So they cannot report what depends on
the target: which volumes belong to a tenant, and what is left of a quota.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyExplain(), newPolicyShow(), newPolicyTest(), newPolicyRoles(), newPolicyLearned())
	return cmd
}

// policyOptions contains the flags that all policy commands have.
type policyOptions struct{ config string }

func (o *policyOptions) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.config, "config", defaultConfig, "configuration file")
}

func (o *policyOptions) load() (*dryrun.DryRun, error) {
	return dryrun.Load(o.config, rpcschema.Default())
}

func newPolicyShow() *cobra.Command {
	var (
		o  policyOptions
		as string
	)
	cmd := &cobra.Command{
		Use:   "show --as NAME",
		Short: "List the methods that a user may call",
		Long: `List the methods that a user may call, one on each line, with the rule that allows it.
If the decision depends on parameters, the rules with conditions follow, denies first.`,
		Example: `  spdk-proxy policy show --as csi`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := o.load()
			if err != nil {
				return err
			}
			user, err := r.User(as)
			if err != nil {
				return usageError{err}
			}
			return show(cmd.OutOrStdout(), r, user)
		},
	}
	o.addTo(cmd)
	cmd.Flags().StringVar(&as, "as", "", "name of the user")
	_ = cmd.MarkFlagRequired("as")
	_ = cmd.RegisterFlagCompletionFunc("as", o.completeUsers)
	return cmd
}

func show(w io.Writer, r *dryrun.DryRun, user config.User) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	foreign := 0
	for _, m := range r.Policy().Methods(user.Name) {
		c, err := r.Call(user, m.Method, nil, false, rpcschema.Release{})
		if err != nil {
			return err
		}
		if c.Foreign {
			foreign++
			continue
		}
		fmt.Fprintf(table, "%s\t%s\n", m.Method, describeDecision(m.Decision))
		for _, rule := range m.Depends {
			fmt.Fprintf(table, "\t  %s\n", rule)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if foreign > 0 {
		fmt.Fprintf(w, "\nThe roles allow %d more methods, which tenants may not call (%s belongs to tenant %s).\n", foreign, user.Name, user.Tenant)
	}
	return nil
}

// describeDecision returns a one-line description of a decision.
func describeDecision(d policy.Decision) string {
	switch {
	case d.Learned:
		return "LEARNING: allowed for now, although " + d.Rule
	case d.Redact:
		return d.Rule + ", without secrets in the result"
	}
	return d.Rule
}

// builtInTexts describes the built-in roles.
var builtInTexts = map[string]string{
	policy.Admin:         "everything",
	policy.ReadOnly:      "methods that change nothing, do not stall the target and need no secret; results without secrets",
	policy.Metrics:       "for monitoring: those methods of read-only that return statistics",
	policy.Cinder:        "the methods that OpenStack Cinder's SPDK driver calls",
	policy.CSIController: "exactly the methods that SPDKGate's CSI driver calls",
}

func newPolicyRoles() *cobra.Command {
	return &cobra.Command{
		Use:   "roles [NAME]",
		Short: "List the built-in roles, or the methods that one of them allows",
		Long: `List the built-in roles, or the methods that one of them allows. The roles are derived
from the schema of SPDK's RPCs (see ` + "`spdk-proxy schema show`" + `), so they also cover methods of
later SPDK releases. The configuration cannot redefine them, but its roles can extend
them.`,
		Example: `  spdk-proxy policy roles
  spdk-proxy policy roles metrics`,
		Args:      maximumArgs(1),
		ValidArgs: slices.Sorted(maps.Keys(builtInTexts)),
		RunE: func(cmd *cobra.Command, args []string) error {
			roles := policy.BuiltIn(rpcschema.Default())
			if len(args) == 0 {
				table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, name := range slices.Sorted(maps.Keys(roles)) {
					fmt.Fprintf(table, "%s\t%s\t%s\n", name, extent(roles[name]), builtInTexts[name])
				}
				return table.Flush()
			}
			role, ok := roles[args[0]]
			if !ok {
				return usage("%s is not a built-in role: these are %s", args[0], strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
			}
			for _, rule := range role.Allow {
				fmt.Fprintln(cmd.OutOrStdout(), rule)
			}
			return nil
		},
	}
}

func extent(role policy.Role) string {
	if len(role.Allow) == 1 && role.Allow[0].Method == "*" {
		return "all methods"
	}
	return fmt.Sprintf("%d methods", len(role.Allow))
}

// maximumArgs is like cobra.MaximumNArgs, but returns a usage error.
func maximumArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(n)(cmd, args); err != nil {
			return usage("%w: see `%s --help`", err, cmd.CommandPath())
		}
		return nil
	}
}
