package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy"
)

const (
	defaultFrozen = "/var/lib/spdk-proxy/frozen"
	thawAgain     = 50 * time.Millisecond
)

func newThaw() *cobra.Command {
	var dir string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "Thaw volumes that an interrupted snapshot or deletion left frozen",
		Long: `Thaw volumes that an interrupted snapshot or deletion left frozen.

While a snapshot of a volume in use is taken, the paths to it are inaccessible, and
hosts hold their I/O back (target.freeze). If the proxy is killed meanwhile, this
command puts the paths' states back, from the journal that the proxy has left. The
service does so by itself when it ends and when it starts (ExecStopPost=), without
its configuration. What a living proxy is working on is left alone.

Nothing to do is a success. It fails while paths are still inaccessible.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			for {
				left, err := proxy.Thaw(ctx, dir, log)
				if errors.Is(err, fs.ErrNotExist) {
					return nil // no proxy has ever frozen anything
				}
				if err != nil || left == 0 {
					return err
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("paths to volumes are still inaccessible, by %d entries in %s: see what the log says, and whether spdk_tgt answers; then run `spdk-proxy thaw` again", left, dir)
				case <-time.After(thawAgain):
				}
			}
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultFrozen, "the journal's folder (target.freeze.dir)")
	cmd.Flags().DurationVar(&within, "within", 20*time.Second, "how long to try")
	return cmd
}
