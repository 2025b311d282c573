package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
)

// errRefused sets the exit code for a call that is not allowed.
var errRefused = errors.New("the call is not allowed")

func newPolicyExplain() *cobra.Command {
	var (
		o  policyOptions
		r  schemacmd.ReleaseFlag
		as string
	)
	cmd := &cobra.Command{
		Use:   "explain --as NAME METHOD [name=value...]",
		Short: "Explain whether a user may make a call",
		Long: `Print whether a user may make a call, which rule decides, and why each other rule for
the method does not: a deny wins over every allow, and a call that no rule allows is
refused. Write parameters as for ` + "`spdk-proxy call`" + `. Without
parameters, the command considers only the method; if rules have conditions, give the
parameters to get a decision.

The exit code is 0 if the call is allowed, 1 if it is not.`,
		Example: `  spdk-proxy policy explain --as csi bdev_lvol_delete
  spdk-proxy policy explain --as team-a bdev_lvol_create lvs_name=lvs-a lvol_name=v size_in_mib=1024
  spdk-proxy policy explain --as cinder bdev_lvol_create lvs_name=lvs0 lvol_name=v size=1073741824 --spdk-version v26.05`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name a method, such as bdev_get_bdevs: see `spdk-proxy policy explain --help`")
			}
			return nil
		},
		ValidArgsFunction: completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.dryRun(as, args, r.Release)
			if err != nil {
				return err
			}
			if err := explain(cmd.OutOrStdout(), c, len(args) > 1, r.Release); err != nil {
				return err
			}
			if !c.Allowed() {
				return errRefused
			}
			return nil
		},
	}
	o.addTo(cmd)
	cmd.Flags().StringVar(&as, "as", "", "name of the user")
	_ = cmd.MarkFlagRequired("as")
	_ = cmd.RegisterFlagCompletionFunc("as", o.completeUsers)
	cmd.Flags().Var(&r, "spdk-version", "release of the target, such as v26.05, for which parameters are translated")
	_ = cmd.RegisterFlagCompletionFunc("spdk-version", cobra.NoFileCompletions)
	return cmd
}

func (o *policyOptions) dryRun(as string, args []string, r rpcschema.Release) (*dryrun.Result, error) {
	d, err := o.load()
	if err != nil {
		return nil, err
	}
	user, err := d.User(as)
	if err != nil {
		return nil, usageError{err}
	}
	schema := rpcschema.Default()
	method, err := schema.Find(args[0], rpcschema.Release{})
	if err != nil {
		return nil, usageError{err}
	}
	params, err := parseParams(method, schema, args[1:])
	if err != nil {
		return nil, err
	}
	return d.Call(user, args[0], params, len(args) > 1, r)
}

// explain writes the decision about a call, followed by the reasons for it.
func explain(w io.Writer, c *dryrun.Result, given bool, r rpcschema.Release) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s\n\n", c.Verdict(given))
	line("user", "%s, roles: %s", c.User.Name, strings.Join(c.User.Roles, ", "))
	line("call", "%s: %s", c.Method.Name, c.Method.Summary)
	for _, t := range c.Translations {
		line("translated", "%s to %s for %s", t.From, t.To, r)
	}
	if c.Invalid != nil {
		line("invalid", "%s", c.Invalid)
	}
	line("decided by", "%s", c.Rule())
	for _, f := range c.Rules {
		if !f.Decides {
			line("other rule", "%s: %s", f.Rule, f.Why)
		}
	}
	if c.Decision.Redact {
		line("result", "without secrets")
	}
	if c.Standing != "" {
		line("tenant", "%s: %s", c.User.Tenant, c.Standing)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
