package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/execute"
)

const (
	frozenName = "frozen" // name of the packaged configuration's journal
	thawRetry  = 50 * time.Millisecond
)

func newThaw() *cobra.Command {
	var dir string
	var selected instance
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "Thaw volumes that an interrupted snapshot or deletion left frozen",
		Long: `Thaw volumes that an interrupted snapshot or deletion left frozen.

During a snapshot of a volume in use, the paths to it are inaccessible, and hosts hold
back I/O (target.freeze). If the proxy is killed at that time, this command restores
the states of the paths from the proxy's journal. The service runs it when it ends
(ExecStopPost=), and does the same when it starts. The command does not read the
configuration. It skips volumes that a running proxy is working on.

The command succeeds if there is nothing to do, and fails if paths are still
inaccessible afterwards.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				dir = filepath.Join(selected.StateDirectory(), frozenName)
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			for {
				left, err := execute.Thaw(ctx, dir, log)
				if errors.Is(err, fs.ErrNotExist) {
					return nil // without a journal, no volume was ever frozen
				}
				if err != nil || left == 0 {
					return err
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("paths to volumes are still inaccessible (%d entries in %s): read the log, check that spdk_tgt responds, then run `spdk-proxy thaw` again", left, dir)
				case <-time.After(thawRetry):
				}
			}
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the journal (target.freeze.dir; default: "+frozenName+" in the state directory of the service)")
	selected.addTo(cmd.Flags())
	cmd.Flags().DurationVar(&within, "within", 20*time.Second, "how long to retry")
	return cmd
}
