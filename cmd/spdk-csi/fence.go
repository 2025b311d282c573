package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

type fenceFlags struct {
	node    string
	targets []string
	yes     bool
	timeout time.Duration
}

func (f *fenceFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.node, "node", "", "id of the node, which is its name in the cluster (required)")
	fs.BoolVar(&f.yes, "yes", false, "make the changes; without this flag, they are only printed")
	fs.StringSliceVar(&f.targets, "target", nil, "use only this target of config.json; may be repeated")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "time limit for each target")
	_ = cmd.MarkFlagRequired("node")
}

func fenceCommand() *cobra.Command {
	var f fenceFlags
	cmd := &cobra.Command{
		Use:   "fence --node ID [--yes]",
		Short: "Cut a node off from all volumes",
		Long: `fence cuts a node off from all volumes on all targets of config.json, for instance because it does
not answer any more and may still be writing. On each target, it marks the node as fenced, so that
the controller publishes no volume to it, and removes the node from all exports. The target closes
the node's connections. Data is not changed. Without --yes, fence only prints what it would do.

It prints each change, and can be repeated: a second call prints what the first one left. If a
target does not answer, fence goes on with the others and fails: the node may then still write to
volumes of that target. It also fails if it takes nothing away from the node and no target had
marked it before, since the name may be wrong.

The mark stays until unfence. fence does not tell Kubernetes anything: see the manual for the taint
node.kubernetes.io/out-of-service, with which the pods of the node start elsewhere.

Exit codes: 0 the node is fenced on all targets; 1 it is not, or no export admitted it.`,
		Example: `  kubectl -n spdkcsi exec deployment/spdkcsi-controller -c spdkcsi-controller -- \
    spdk-csi fence --node worker-3 --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.fenceOnAll(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	return cmd
}

func unfenceCommand() *cobra.Command {
	var f fenceFlags
	cmd := &cobra.Command{
		Use:   "unfence --node ID [--yes]",
		Short: "Let a fenced node use volumes again",
		Long: `unfence removes the marks of a fenced node from all targets of config.json, so that the controller
publishes volumes to it again. Restart the node before: its kernel may still hold writes from the
time before it was fenced, and would send them to the volumes that it gets back. Without --yes,
unfence only prints where the node is fenced.

Exit codes: 0 the node is fenced on no target any more; 1 error.`,
		Example: `  kubectl -n spdkcsi exec deployment/spdkcsi-controller -c spdkcsi-controller -- \
    spdk-csi unfence --node worker-3 --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), f.unfence)
		},
	}
	f.add(cmd)
	return cmd
}

// run calls the function do for all targets concurrently, and prints the results in the order of
// config.json.
func (f fenceFlags) run(ctx context.Context, out, notes io.Writer, do func(context.Context, doctor.Target) (lines []string, err error)) error {
	if err := request.CheckNodeID(f.node); err != nil {
		return fmt.Errorf("--node: %w", err)
	}
	targets, closeAll, err := openTargets(f.targets, notes)
	if err != nil {
		return err
	}
	defer closeAll()
	lines, failures := make([][]string, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, f.timeout)
			defer cancel()
			lines[i], failures[i] = do(ctx, t)
		})
	}
	all.Wait()
	for i, t := range targets {
		for _, line := range lines[i] {
			fmt.Fprintf(out, "%s: %s\n", t.Name, printable.String(line))
		}
		if failures[i] != nil {
			failures[i] = fmt.Errorf("%s: %w", t.Name, failures[i])
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if !f.yes {
		fmt.Fprintln(out, "Nothing was changed: repeat the command with --yes.")
	}
	return nil
}

// errNotAdmitted means that the node could not use any volumes even before it was fenced.
var errNotAdmitted = errors.New("no export admitted the node")

// fenceOnAll fences the node on all targets. It fails if no export admitted the node, because the
// name may be mistyped, and the intended node may still be able to write.
func (f fenceFlags) fenceOnAll(ctx context.Context, out, notes io.Writer) error {
	var known atomic.Bool
	err := f.run(ctx, out, notes, func(ctx context.Context, t doctor.Target) ([]string, error) {
		changes, err := t.Fence(ctx, controller.HostOf(f.node), f.node, !f.yes)
		if !slices.ContainsFunc(changes, func(c export.Fencing) bool { return c == export.MarkFence }) || len(changes) > 1 {
			known.Store(true)
		}
		return f.fenced(changes, err)
	})
	if err != nil || known.Load() {
		return err
	}
	if !f.yes {
		fmt.Fprintf(out, "No export admits node %s: check its name.\n", f.node)
		return nil
	}
	return fmt.Errorf("%w: check the name %s. If it is wrong, run spdk-csi unfence --node %s --yes, and fence the right node. If it is correct, the node is now fenced", errNotAdmitted, f.node, f.node)
}

// fenced describes the changes on one target, and fails if the node can still use the target.
func (f fenceFlags) fenced(changes []export.Fencing, err error) (lines []string, _ error) {
	if err != nil {
		err = fmt.Errorf("node %s is not fenced: it may still write to volumes of this target: %w", f.node, err)
	}
	problems := 0
	for _, c := range changes {
		lines = append(lines, describe(c))
		if c.Problem != "" {
			problems++
		}
	}
	if err == nil && problems > 0 {
		err = fmt.Errorf("node %s can still use %s of this target", f.node, plural(problems, "export"))
	}
	if err == nil && len(changes) == 0 {
		lines = append(lines, "node "+f.node+" is fenced, and no export admits it")
	}
	return lines, err
}

func describe(c export.Fencing) string {
	switch {
	case c.Problem != "":
		return c.Export + ": " + c.Problem
	case c.Export != "":
		return c.Export + ": " + c.Change
	}
	return c.Change
}

func (f fenceFlags) unfence(ctx context.Context, t doctor.Target) (lines []string, err error) {
	was, err := t.Unfence(ctx, controller.HostOf(f.node), !f.yes)
	switch {
	case err != nil:
		return nil, err
	case !was:
		return []string{"node " + f.node + " is not fenced"}, nil
	case f.yes:
		return []string{"node " + f.node + " is no longer fenced"}, nil
	}
	return []string{"node " + f.node + " is fenced"}, nil
}
