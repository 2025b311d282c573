package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// readTargetsFirst is the default time that the plugin waits before it reads the list of volumes
// from Kubernetes. Meanwhile, spdk-csi doctor reads the targets for the first time, so volumes that
// are being created are not mistaken for orphans.
const readTargetsFirst = 10 * time.Second

func (p *plugin) doctorCommand() *cobra.Command {
	var others string
	var targetsOnly bool
	delay := readTargetsFirst
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find leftovers and differences on storage servers",
		Long: `doctor runs spdk-csi doctor in the controller's pod, with the list of what Kubernetes knows: PersistentVolumes,
VolumeAttachments and VolumeSnapshotContents. It changes nothing without --fix. If other clusters use the
same storage servers, give their lists with --other-clusters. Otherwise their volumes are reported as
orphans.

It takes more than a minute if it finds anything, because it then reads everything twice.

Exit codes: 0 nothing was found, or all of it was repaired; 1 something was found; 2 error.`,
		Example: `  kubectl spdkgate doctor
  kubectl --context=other get pv,volumeattachment,volumesnapshotcontent -o json >other.json
  kubectl spdkgate doctor --other-clusters other.json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, _ []string) error {
			args := given(cmd, "fix", "delete-volume", "target", "json", "wait", "timeout")
			if targetsOnly {
				return p.client.DoctorTargets(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args...)
			}
			var lists []byte
			if others != "" {
				var err error
				if lists, err = os.ReadFile(others); err != nil {
					return fmt.Errorf("--other-clusters: %w", err)
				}
			}
			args = append(args, "--drivername="+p.driverName)
			return p.client.Doctor(cmd.Context(), delay, lists, cmd.OutOrStdout(), cmd.ErrOrStderr(), args...)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&others, "other-clusters", "", "file with the lists of other clusters that use the storage servers, as kubectl get pv,volumeattachment,volumesnapshotcontent -o json prints them")
	fs.BoolVar(&targetsOnly, "targets-only", false, "compare nothing with Kubernetes")
	fs.StringSlice("target", nil, "read only this storage server; may be repeated")
	fs.Bool("fix", false, "repair what can be repaired without losing data")
	fs.StringSlice("delete-volume", nil, "with --fix: delete this orphan, TARGET:UUID, and its data; may be repeated")
	fs.Bool("json", false, "print the findings as JSON")
	fs.String("wait", "", "time between the two readings")
	fs.String("timeout", "", "time that one reading of a storage server may take")
	fs.DurationVar(&delay, "list-after", readTargetsFirst, "time after which the list of volumes is read")
	_ = fs.MarkHidden("list-after")
	cmd.MarkFlagsMutuallyExclusive("targets-only", "other-clusters")
	return cmd
}

// given returns those of the named flags that the user has set, as arguments for spdk-csi.
func given(cmd *cobra.Command, names ...string) (args []string) {
	for _, name := range names {
		f := cmd.Flag(name)
		if !f.Changed {
			continue
		}
		if several, ok := f.Value.(pflag.SliceValue); ok {
			for _, value := range several.GetSlice() {
				args = append(args, "--"+name+"="+value)
			}
			continue
		}
		args = append(args, "--"+name+"="+f.Value.String())
	}
	return args
}

var fenceHelp = map[string]struct{ short, long string }{
	"fence": {"Cut a node off from all volumes", `fence runs spdk-csi fence in the controller's pod: it cuts a node off from all volumes on all storage servers,
for instance because the node does not answer and may still be writing. Without --yes, it only prints what it
would do.

It tells Kubernetes nothing: see the manual for the taint node.kubernetes.io/out-of-service.

Exit codes: 0 the node is fenced on all storage servers; another one: it is not.`},
	"unfence": {"Let a fenced node use volumes again", `unfence runs spdk-csi unfence in the controller's pod: it lets a fenced node use volumes again. Restart the node
before. Without --yes, it only prints where the node is fenced.

Exit codes: 0 the node is fenced on no storage server any more; another one: error.`},
}

func (p *plugin) fenceCommand(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " NODE [--yes]",
		Short: fenceHelp[name].short,
		Long:  fenceHelp[name].long,
		Args:  cobra.ExactArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.completeNodes(cmd, args, "")
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all := append([]string{name, "--node=" + args[0]}, given(cmd, "yes", "target", "timeout")...)
			return p.client.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), all...)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Bool("yes", false, "make the changes; without this flag, they are only printed")
	fs.StringSlice("target", nil, "use only this storage server; may be repeated")
	fs.String("timeout", "", "time that one storage server may take")
	return cmd
}
