package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/request"
)

func replicaCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "replica", Short: "Decide about the replicas of a volume"}
	cmd.AddCommand(keepCommand())
	return cmd
}

type keepFlags struct {
	replication          replicationFlags
	stoppedNode, discard string
	timeout              time.Duration
}

func keepCommand() *cobra.Command {
	f := keepFlags{replication: replicationFlags{enabled: true}}
	cmd := &cobra.Command{
		Use:   "keep VOLUME SERVER [--stopped-node NODE --discard SERVER]",
		Short: "Continue a volume with one replica, and discard the other",
		Long: `keep continues a volume with the replica on the storage server SERVER, and discards the replica on
the other server. Use it if the volume waits for a server that will never return (WaitingForReplica),
or if each replica records that the other one failed (SplitBrain). VOLUME is the volume's id, which
is the volumeHandle of its PersistentVolume: replicated:UUID.

All data that only the discarded replica contains is lost, including writes that an application
considers as stored. A file system may have to be repaired. The discarded replica is never used
again: when a node uses the volume and the server responds, the replica is overwritten completely.

Without --stopped-node and --discard, keep changes nothing, and prints the state of the volume. The
two options confirm the decision:
  --stopped-node NODE  the node that used the volume last no longer writes to it, because its pod is
                       stopped, or because the node is powered off
  --discard SERVER     the data on this server is lost

keep ends the publication to the node. The controller must reach the server of the replica that is
kept. If keep fails, repeat it.

Exit codes: 0 done, or nothing was requested; 1 error.`,
		Example: `  kubectl get pv pvc-8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d -o jsonpath={.spec.csi.volumeHandle}
  kubectl -n spdkcsi exec deployment/spdkcsi-controller -c spdkcsi-controller -- \
    spdk-csi replica keep replicated:5e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d storage-2 \
    --stopped-node worker-3 --discard storage-1`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return f.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], args[1])
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.stoppedNode, "stopped-node", "", "confirms that this node, which used the volume last, no longer writes to it")
	fs.StringVar(&f.discard, "discard", "", "confirms that the data on this storage server is lost")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "time limit")
	fs.StringVar(&f.replication.accountDir, "service-account-dir", kubernetes.ServiceAccountDir, "directory with the token and the CA of the Kubernetes API")
	return cmd
}

func (f keepFlags) run(ctx context.Context, out, notes io.Writer, volumeID, server string) error {
	d := controller.KeepDecision{Server: server, Discard: f.discard, StoppedNode: f.stoppedNode}
	var err error
	if d.Volume, err = request.ParseVolumeID(volumeID); err != nil {
		return err
	}
	if !d.Volume.Replicated() {
		return fmt.Errorf("%w: volume %s has one replica", request.ErrUnsupported, d.Volume)
	}
	c, err := openController(notes)
	if err != nil {
		return err
	}
	defer c.Close()
	witnesses, err := f.replication.witnesses()
	if err != nil {
		return err
	}
	c.SetWitnesses(witnesses)
	act := c.KeepReplica
	if f.discard == "" && f.stoppedNode == "" {
		act = c.InspectKeep
	}
	state, err := act(ctx, d)
	if err != nil {
		return err
	}
	f.print(out, d, state)
	return nil
}

// print describes the state of the volume, and the command that carries out the decision.
func (f keepFlags) print(out io.Writer, d controller.KeepDecision, state controller.KeepState) {
	if state.Done {
		fmt.Fprintf(out, "volume %s continues with the replica on %s; the replica on %s is discarded, and will be overwritten\n", d.Volume, d.Server, state.Discard)
		if state.Unreached != nil {
			fmt.Fprintf(out, "%s cannot be reached: it may still export the discarded replica to node %s until the volume is published again\n", state.Discard, d.StoppedNode)
		}
		return
	}
	for _, r := range state.Replicas {
		current, action := "not current", "discarded: data that only this replica contains is lost"
		if r.InSync {
			current = "current"
		}
		if r.Keep {
			action = "kept"
		}
		fmt.Fprintf(out, "replica %d on %s: %s; would be %s\n", r.Number, r.Server, current, action)
	}
	node, where := state.Writer, "published to node "+state.Writer
	if node == "" {
		node, where = "NODE", "not published; NODE is the node that used it last"
	}
	fmt.Fprintf(out, "The volume is %s.\nNothing was changed. Make sure that the node no longer writes, and confirm with --stopped-node %s --discard %s\n", where, node, state.Discard)
}
