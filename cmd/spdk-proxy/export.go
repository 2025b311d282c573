package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/exports"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func newExport() *cobra.Command {
	var o callOptions
	var r exports.Request
	var listen []string
	var key, ctrlrKey string
	var dryRun bool
	transport := "tcp"
	cmd := &cobra.Command{
		Use:   "export VOLUME {--host NQN... | --any-host}",
		Short: "Export a volume over NVMe-oF to hosts",
		Long: `Export a logical volume (LVSTORE/LVOL or UUID) over NVMe-oF: a subsystem with ANA
reporting, which snapshots of a volume in use need, the hosts that may connect, and
listeners. If the volume is exported already, the command adds what is missing.

The command prints the calls before it makes them, and then the commands for the
hosts. --dry-run makes no changes. The command refuses if it knows that the proxy will
refuse a call: because of the user's roles, or because of the limits of the user's
tenant. If a call fails, the command undoes the calls
before it. If the command is killed, repeat it: it completes the export.

Without --listen, a new export listens at all addresses of the target's other exports,
except those of tenants to which the volume does not belong.
--dhchap-key NAME names a key of the target's keyring with which the hosts
authenticate. NAME=@FILE adds the key in the first line of a file, in the form that
nvme gen-dhchap-key writes.

Users with a tenant choose NQNs, hosts, addresses and names of keys that belong to the
tenant. The proxy's refusal lists them. If the value of --nqn ends with a colon, the
volume's UUID follows.

The command refuses to change an export of the CSI driver unless --nqn names it.

Exit codes: those of spdk-proxy call.`,
		Example: `  spdk-proxy export lvs0/vol1 --host nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000001 --listen 192.0.2.11:4420
  spdk-proxy export lvs0/vol1 --host "$(ssh node1 cat /etc/nvme/hostnqn)" --dhchap-key node1=@node1.key --dry-run
  spdk-proxy export lvs0/vol1 --any-host --listen 192.0.2.11:4420`,
		Args:              betweenArgs(1, 1, "the volume, as LVSTORE/LVOL or by its UUID"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Volume = args[0]
			if transport != "tcp" && transport != "rdma" {
				return usage("--transport must be tcp or rdma")
			}
			for _, text := range listen {
				at, err := exports.ParsePortal(transport, text)
				if err != nil {
					return usage("--listen: %w", err)
				}
				r.Listen = append(r.Listen, at)
			}
			if r.Key, err = keyOf("--dhchap-key", key); err != nil {
				return err
			}
			if r.CtrlrKey, err = keyOf("--dhchap-ctrlr-key", ctrlrKey); err != nil {
				return err
			}
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			r.Allowed, err = allowedMethods(ctx, caller)
			if err != nil && spdkrpc.KindOf(err) != spdkrpc.MethodNotFound { // the target's own socket does not have the method
				return err
			}
			client := spdkrpc.NewClient(caller)
			p, err := exports.PlanExport(ctx, client, r)
			if err != nil {
				return misused(err)
			}
			if reason := p.Unpredicted(); dryRun && reason != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: it is unknown whether this user belongs to a tenant (%s). If so, the proxy may refuse these calls\n", reason)
			}
			if err := runPlan(ctx, cmd, p, dryRun, "is already exported in this way"); err != nil || dryRun {
				return err
			}
			if err := p.Verify(ctx, client); err != nil {
				return err
			}
			printConnect(cmd, p)
			return nil
		},
	}
	o.addTo(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&r.Hosts, "host", nil, "NQN of a host that may connect; may be repeated")
	f.BoolVar(&r.AnyHost, "any-host", false, "admit every host that reaches an address of the export")
	f.BoolVar(&r.Shared, "shared", false, "admit the host in addition to hosts that are already admitted")
	f.StringArrayVar(&listen, "listen", nil, "IP address and port at which hosts connect; may be repeated for several paths")
	f.StringVar(&transport, "transport", transport, "transport of --listen: tcp or rdma")
	f.StringVar(&r.NQN, "nqn", "", "NQN of the export; the volume's UUID follows if it ends with a colon")
	f.StringVar(&r.Serial, "serial", "", "serial number that hosts see (default: the first 20 digits of the UUID)")
	f.StringVar(&key, "dhchap-key", "", "key with which the hosts authenticate: NAME or NAME=@FILE")
	f.StringVar(&ctrlrKey, "dhchap-ctrlr-key", "", "key with which the target authenticates to the hosts: NAME or NAME=@FILE")
	f.BoolVar(&dryRun, "dry-run", false, "print the calls, and make no changes")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for each response")
	completeValues(cmd, "transport", "tcp", "rdma")
	return cmd
}

func newUnexport() *cobra.Command {
	var o callOptions
	var w exports.Withdrawal
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "unexport VOLUME [--host NQN...]",
		Short: "Withdraw the export of a volume, or the admission of hosts",
		Long: `Withdraw the export of a logical volume (LVSTORE/LVOL or UUID) over NVMe-oF. With
--host, withdraw only the admission of these hosts; the export ends with its last
host. The volume and its data stay.

The command refuses while a host that would lose the volume is connected, unless
--disconnect is given. It succeeds if there is nothing to withdraw. It refuses to
change an export of the CSI driver unless --nqn names it.

If the volume was deleted before its export, name it by its UUID, or give --nqn.

Exit codes: those of spdk-proxy call.`,
		Example: `  spdk-proxy unexport lvs0/vol1 --host nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000001
  spdk-proxy unexport lvs0/vol1`,
		Args:              betweenArgs(1, 1, "the volume, as LVSTORE/LVOL or by its UUID"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.Volume = args[0]
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			p, err := exports.PlanWithdrawal(ctx, spdkrpc.NewClient(caller), w)
			if err != nil {
				return misused(err)
			}
			return runPlan(ctx, cmd, p, dryRun, "has no such export, or none that this user may see")
		},
	}
	o.addTo(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&w.Hosts, "host", nil, "NQN of a host that loses access; may be repeated")
	f.StringVar(&w.NQN, "nqn", "", "NQN that the export must have; the volume's UUID follows if it ends with a colon")
	f.BoolVar(&w.Disconnect, "disconnect", false, "end these hosts' connections; the hosts lose data that they have not written yet")
	f.BoolVar(&dryRun, "dry-run", false, "print the calls, and make no changes")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for each response")
	return cmd
}

func newExports() *cobra.Command {
	var o callOptions
	var connected bool
	output := "text"
	cmd := &cobra.Command{
		Use:   "exports",
		Short: "List exports over NVMe-oF and their hosts",
		Long: `List the exports over NVMe-oF that the user may see: volume, NQN, hosts that may
connect, and listeners. Lines that begin with ! name exports without ANA reporting, of
whose volumes no snapshot is possible while a host is connected, and exports that
admit every host.

--connected also lists the hosts that are connected. SPDK pauses the administrative
commands of each subsystem for a moment to answer.`,
		Example: `  spdk-proxy exports
  spdk-proxy exports --connected -o json | jq -r '.[] | select(.connected_hosts == []) | .volume'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage("--output must be text or json")
			}
			o.streams = true
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			list, err := exports.List(ctx, spdkrpc.NewClient(caller), connected)
			if err != nil {
				return err
			}
			text := []byte(exports.Table(list, connected))
			if output == "json" {
				if text, err = exports.JSON(list); err != nil {
					return err
				}
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	o.addTo(cmd)
	f := cmd.Flags()
	f.BoolVar(&connected, "connected", false, "also list the hosts that are connected")
	f.StringVarP(&output, "output", "o", output, "text or json")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for each response")
	completeValues(cmd, "output", "text", "json")
	return cmd
}

// keyOf parses NAME or NAME=@FILE.
func keyOf(flag, text string) (*exports.Key, error) {
	switch {
	case text == "":
		return nil, nil
	case strings.HasPrefix(text, "DHHC-1:"):
		return nil, usage("%s: name the key instead of its secret, because every user of this host can read a command line: put the secret into a file, and write NAME=@FILE", flag)
	}
	name, file, withSecret := strings.Cut(text, "=")
	k := &exports.Key{Name: name}
	if !withSecret {
		return k, nil
	}
	secret, err := secretIn(flag+" "+name, file)
	if err != nil {
		return nil, usageError{err}
	}
	if k.Secret, _ = secret.(string); k.Secret == "" {
		return nil, usage("%s: the first line of the file of key %s is empty", flag, name)
	}
	return k, nil
}

// misused converts an error that wraps ErrInvalid into a usage error.
func misused(err error) error {
	if errors.Is(err, exports.ErrInvalid) {
		return usageError{err}
	}
	return err
}

// runPlan prints a plan and then, unless dryRun is set, makes its calls. nothing describes the
// volume if the plan is empty.
func runPlan(ctx context.Context, cmd *cobra.Command, p *exports.Plan, dryRun bool, nothing string) error {
	out, errOut := cmd.OutOrStdout(), cmd.ErrOrStderr()
	for _, w := range p.Warnings {
		fmt.Fprintf(errOut, "warning: %s\n", w)
	}
	switch {
	case len(p.Steps) == 0:
		fmt.Fprintf(out, "nothing to do: %s %s\n", p.Volume, nothing)
	case dryRun:
		fmt.Fprintln(out, "these calls would be made (dry run):")
	default:
		fmt.Fprintln(out, "these calls are made:")
	}
	for _, s := range p.Steps {
		fmt.Fprintf(out, "  %s\n", s)
	}
	if dryRun {
		return nil
	}
	return p.Run(ctx, func(s exports.Step) { fmt.Fprintf(errOut, "done: %s\n", s.Method) })
}

// printConnect prints the commands that connect a host to an export.
func printConnect(cmd *cobra.Command, p *exports.Plan) {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s is exported as %s\ncommand on the host:\n", p.Volume, p.NQN)
	for _, c := range p.Connect() {
		fmt.Fprintf(out, "  %s\n", c)
	}
	if len(p.Hosts()) > 0 {
		fmt.Fprintf(out, "/etc/nvme/hostnqn on the host contains: %s\n", strings.Join(p.Hosts(), " or "))
	}
	if p.Authenticates() {
		fmt.Fprintln(out, "the host authenticates with its key: set dhchap_key in /etc/nvme/config.json. Other users of the host can read the argument of --dhchap-secret while nvme connect runs")
	}
}
