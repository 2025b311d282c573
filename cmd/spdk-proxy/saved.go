package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

const savedName = "target" // name of the packaged configuration's directory

func newSaved() *cobra.Command {
	var dir string
	var selected instance
	cmd := &cobra.Command{
		Use:   "saved",
		Short: "Manage the saved configurations of spdk_tgt",
		Long: `Manage the configurations of spdk_tgt that the running service saves (target.save):
current.json, which spdk_tgt -c loads; previous versions, named by their time; and
files that were set aside, which the service never deletes:
  held.json     configuration of a target that lacks part of current.json
  held-*        configuration of such a target that has ended, with parts that no other file has
  replaced-*    replaced by an administrator
  damaged-*     unreadable
  before-*      the last file of another SPDK release`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "directory of the saved configurations (target.save.dir; default: "+savedName+" in the state directory of the service)")
	selected.addTo(cmd.PersistentFlags())
	create := func() (*persist.Folder, error) {
		dir = cmp.Or(dir, filepath.Join(selected.StateDirectory(), savedName))
		return persist.OpenFolder(dir, 1000)
	}
	open := func() (*persist.Folder, error) {
		dir = cmp.Or(dir, filepath.Join(selected.StateDirectory(), savedName))
		if err := persist.CheckFolder(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there are no saved configurations in %s: run this command on the proxy's host, with --dir if target.save.dir names another directory", dir)
		}
		return create()
	}
	cmd.AddCommand(savedList(open), savedDiff(open), savedUse(open), savedPrepare(create), savedFetch())
	return cmd
}

func savedList(open func() (*persist.Folder, error)) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the saved configurations", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := open()
			if err != nil {
				return err
			}
			list, err := folder.List()
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSAVED\tRELEASE\tCALLS")
			for _, s := range list {
				calls := fmt.Sprint(s.Calls)
				if s.Damaged != nil {
					calls = "damaged"
				}
				note := ""
				if !s.Chosen.IsZero() {
					note = "\tchosen on " + s.Chosen.Format(time.RFC3339) + ", not loaded yet"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\n", s.Name, s.Time.Format(time.RFC3339), s.Release, calls, note)
			}
			return w.Flush()
		},
	}
}

func savedDiff(open func() (*persist.Folder, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "diff [FROM] [TO]",
		Short: "Compare two saved configurations",
		Long:  "List the calls that only one of two saved configurations has, without secrets. The default of FROM is current.json,\nthat of TO is held.json, which exists only while the target lacks part of the saved configuration.",
		Args:  betweenArgs(0, 2, "FROM and TO, which are names that `spdk-proxy saved list` prints"),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := []string{persist.Current, persist.Held}
			copy(names, args)
			folder, err := open()
			if err != nil {
				return err
			}
			removed, added, err := folder.Diff(rpcschema.Default(), names[0], names[1])
			if len(args) == 0 && errors.Is(err, persist.ErrNothingHeld) {
				fmt.Fprintln(cmd.OutOrStdout(), "no differences: the target contained the whole saved configuration at the last comparison")
				return nil
			}
			if err != nil {
				return err
			}
			return writeDiff(cmd.OutOrStdout(), removed, added)
		},
	}
}

func writeDiff(w io.Writer, removed, added []persist.Call) error {
	for i, calls := range [][]persist.Call{removed, added} {
		for _, c := range calls {
			if _, err := fmt.Fprintf(w, "%c %s: %s\n", "-+"[i], printable.String(c.Subsystem), printable.String(c.String())); err != nil {
				return err
			}
		}
	}
	return nil
}

func savedUse(open func() (*persist.Folder, error)) *cobra.Command {
	var examine bool
	cmd := &cobra.Command{
		Use:   "use NAME",
		Short: "Choose a saved configuration for the next start of spdk_tgt",
		Long: `Make a saved configuration the current one, which spdk_tgt loads at its next start. The
previous one is set aside. The running target and service do not change. The service
does not overwrite the chosen file until a new process of spdk_tgt has loaded it;
until then it saves changes to held.json.

The command refuses a file that has SPDK examine more disks than current.json does,
because hosts may have written lvstores to these disks since that file was saved.`,
		Args: betweenArgs(1, 1, "one name that `spdk-proxy saved list` prints"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := open()
			if err != nil {
				return err
			}
			if !examine {
				if err := refuseExamination(folder, args[0]); err != nil {
					return err
				}
			}
			if err := folder.Use(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is now the current configuration. Restart spdk_tgt to load it; until then it is not overwritten.\n", args[0])
			return nil
		},
	}
	cmd.Flags().BoolVar(&examine, "examine", false, "also choose a file that makes SPDK examine more disks than current.json does, because no host could write to them")
	return cmd
}

func savedPrepare(open func() (*persist.Folder, error)) *cobra.Command {
	var copyTo, reader string
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Check that spdk_tgt can start with current.json",
		Long: `Check that spdk_tgt can start with current.json. Run this in spdk_tgt's unit
(ExecStartPre=). If nothing was saved yet, the command creates a file without calls. If
current.json cannot be loaded, or is missing while other files exist, the command fails
and says what to do.

If spdk_tgt does not run as root, it cannot read current.json. With --copy-to and --for,
run as root, the command creates a copy that only spdk_tgt's user can read, in a
directory that only root and that user may write. It follows no link.`,
		Example: `  spdk-proxy saved prepare --copy-to /run/spdk/saved.json --for spdk`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var uid, gid int
			if (copyTo == "") != (reader == "") {
				return usage("--copy-to FILE and --for USER belong together: specify both or neither")
			}
			if reader != "" {
				var err error
				if uid, gid, err = userIDs("--for", reader); err != nil {
					return err
				}
			}
			folder, err := open()
			if err != nil {
				return err
			}
			calls, err := folder.Prepare()
			if err != nil {
				return err
			}
			if copyTo != "" {
				if err := folder.CopyCurrent(copyTo, uid, gid); err != nil {
					return err
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the saved configuration has %s\n", terminal.Plural(calls, "call"))
			return nil
		},
	}
	cmd.Flags().StringVar(&copyTo, "copy-to", "", "file to copy current.json to")
	cmd.Flags().StringVar(&reader, "for", "", "name or number of spdk_tgt's user, who may read the copy")
	return cmd
}

// betweenArgs requires between least and most positional arguments, which the error names as
// arguments.
func betweenArgs(least, most int, arguments string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage("%s needs %s: see `%s --help`", cmd.CommandPath(), arguments, cmd.CommandPath())
		}
		return nil
	}
}
