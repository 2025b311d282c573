package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spdkgate/spdkgate/driver/kubectl"
)

func (p *plugin) moveCommand() *cobra.Command {
	m := kubectl.Move{Poll: 2 * time.Second}
	var deleteOriginal, keepOriginal bool
	cmd := &cobra.Command{
		Use:   "move CLAIM --parameter KEY=VALUE [--prepare] | --delete-original | --keep-original",
		Short: "Move the volume of a claim to another lvstore or storage server",
		Long: `move copies the volume of a claim to another lvstore or storage server, and makes the claim use the copy.
--parameter has the parameters of a StorageClass, which decide where and how the copy is created, such as
target=storage-2.

No pod may use the claim. The command runs spdk-csi move in a Job with the controller's image and
configuration, and shows its progress. Then it deletes the claim, and creates it again with the copy. Start the
pods, make sure that they have their data, and delete the original:
  --delete-original

With --prepare, it only copies a snapshot while pods use the volume. A later move then copies what has changed.
--keep-original gives a move up, as long as the claim uses the original.

Everything that is needed to continue is stored in a ConfigMap in the driver's namespace. If the command is
interrupted or fails, repeat it.

Exit codes: 0 done; 1 error.`,
		Example: `  kubectl spdkgate move data --namespace shop --parameter target=storage-2
  kubectl spdkgate move data --namespace shop --delete-original`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			m.Claim = args[0]
			if err := p.complete(cmd, &m); err != nil {
				return err
			}
			switch {
			case deleteOriginal:
				err = m.DeleteOriginal(cmd.Context())
			case keepOriginal:
				err = m.KeepOriginal(cmd.Context())
			default:
				err = m.Run(cmd.Context())
			}
			if err != nil && cmd.Context().Err() != nil {
				return errors.New("interrupted. A Job that has started goes on; repeat the command to continue")
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&m.Namespace, "namespace", "n", "", "namespace of the claim; by default, that of your kubeconfig file's context")
	parameterFlag(fs, &m)
	fs.BoolVar(&m.Prepare, "prepare", false, "copy a snapshot of the volume while pods use it, to shorten the move")
	fs.BoolVar(&deleteOriginal, "delete-original", false, "delete the original, after the claim uses the copy")
	fs.BoolVar(&keepOriginal, "keep-original", false, "give the move up, and let nodes attach the original again")
	jobFlags(fs, &m)
	for _, end := range []string{"delete-original", "keep-original"} {
		cmd.MarkFlagsMutuallyExclusive(end, "parameter")
		cmd.MarkFlagsMutuallyExclusive(end, "prepare")
	}
	cmd.MarkFlagsMutuallyExclusive("delete-original", "keep-original")
	return cmd
}

func parameterFlag(fs *pflag.FlagSet, m *kubectl.Move) {
	fs.StringToStringVar(&m.Parameters, "parameter", nil, "StorageClass parameter of the copy, such as target=storage-2; may be repeated")
}

// jobFlags adds the flags of the Job that copies volumes.
func jobFlags(fs *pflag.FlagSet, m *kubectl.Move) {
	fs.StringVar(&m.Node, "node", "", "node on which the volume is copied; by default, Kubernetes chooses one")
	fs.StringVar(&m.KeysSecret, "keys-secret", "", "Secret in the driver's namespace with the keys with which nodes authenticate")
	fs.StringVar(&m.DaemonSet, "node-daemonset", "spdkcsi-node", "DaemonSet of the node plugin")
	fs.StringVar(&m.NodeContainer, "node-container", "spdkcsi-node", "container of the driver in the node plugin's pods")
	fs.DurationVar(&m.Patience, "timeout", 2*time.Minute, "time that Kubernetes may take for a step, not for copying")
}

// complete fills in what all commands have in common.
func (p *plugin) complete(cmd *cobra.Command, m *kubectl.Move) error {
	m.Client, m.Driver, m.Out, m.Notes = p.client, p.driverName, cmd.OutOrStdout(), cmd.ErrOrStderr()
	if m.Namespace == "" {
		namespace, err := p.client.CurrentNamespace(cmd.Context())
		if err != nil {
			return fmt.Errorf("--namespace is missing: %w", err)
		}
		m.Namespace = namespace
	}
	return nil
}
