package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func newTop() *cobra.Command {
	var o callOptions
	var interval time.Duration
	var rows, count int
	var all bool
	order := "iops"
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the volumes with most I/O, live",
		Long: `Show the volumes with most I/O on one screen that is refreshed: operations and
megabytes per second, and mean latency in milliseconds, of reads and writes. If the
latency histogram of a volume is on (bdev_enable_histogram), also the median and the
99th percentile of the latencies in the last minute, which the proxy keeps.

The figures are read through a proxy (--url) or at a socket (--socket), which is the
proxy's listen_unix or the target's own. The user needs a role that allows
bdev_get_iostat, bdev_lvol_get_lvols and bdev_lvol_get_lvstores; a user with a tenant
sees the tenant's volumes and, with --all, its other bdevs. With many volumes, a
reading takes long, and the screen is refreshed less often, so that the target does
not become busy.`,
		Example: `  spdk-proxy top
  spdk-proxy top -n 5 --sort latency --interval 5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case terminal.Orders[order] == nil:
				return usage("--sort must be %s", strings.Join(slices.Sorted(maps.Keys(terminal.Orders)), ", "))
			case interval < time.Second:
				return usage("--interval must be at least 1s")
			case rows < 0 || count < 0:
				return usage("--rows and --count must not be negative")
			}
			o.streams = true
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			r := &remote{caller: caller, timeout: o.timeout, reader: figures.NewIOReader(rpcschema.Default()), io: true, all: all}
			var history ioHistory
			before, err := r.read(ctx)
			for shown := 0; err == nil; {
				if !pause(ctx, interval) {
					return nil
				}
				var now *figures.Figures
				if now, err = r.read(ctx); err != nil {
					break
				}
				if !now.Up || len(now.Failures) > 0 {
					return notReadable(now)
				}
				if now.Clock == before.Clock {
					continue // reading took so long that the next reading is not due yet
				}
				rates := terminal.Rates(before, now, order, all)
				terminal.AddPercentiles(rates, history.read(ctx, r))
				title := fmt.Sprintf("%s  %s", now.Taken.Local().Format(time.TimeOnly), terminal.Plural(len(now.Volumes), "volume"))
				if len(rates) > 0 {
					title += fmt.Sprintf(", over %.1f s", now.Clock-before.Clock)
				}
				if err := refresh(printable.Raw(cmd.OutOrStdout()), []byte(thisPage().Top(title, rates, rowsOf(rows))), true); err != nil {
					return err
				}
				before = now
				if shown++; shown == count {
					return nil
				}
			}
			return err
		},
	}
	o.addTo(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for each response")
	f.IntVarP(&rows, "rows", "n", 0, "number of volumes; 0: as many as fit")
	f.StringVar(&order, "sort", order, "iops, throughput or latency")
	f.BoolVarP(&all, "all", "a", false, "also show other bdevs, such as disks")
	f.DurationVar(&interval, "interval", 2*time.Second, "time between two refreshes")
	f.IntVar(&count, "count", 0, "exit after this many screens; 0: never")
	completeValues(cmd, "sort", slices.Sorted(maps.Keys(terminal.Orders))...)
	return cmd
}

// rowsOf returns how many volumes to show: the number wanted, or as many as fit on the terminal if
// no number is given.
func rowsOf(wanted int) int {
	if wanted > 0 {
		return wanted
	}
	if _, height, err := term.GetSize(int(os.Stdout.Fd())); err == nil && height > 4 {
		return height - 3 // reserves lines for the title, the heading and the cursor
	}
	return 20
}

func notReadable(f *figures.Figures) error {
	for _, failed := range f.Failures {
		return failed.Err
	}
	return &spdkrpc.Error{Method: "bdev_get_iostat", Kind: spdkrpc.Unreachable, Message: "the target is " + f.Phase}
}

// targetDown reports whether the proxy responded that it cannot reach its target. It returns false
// if the proxy itself is unreachable.
func targetDown(err error) bool {
	var answer *spdkrpc.Error
	var network net.Error
	return errors.As(err, &answer) && answer.Code == jsonrpc.CodeUnreachable && !errors.As(err, &network)
}

// historyAge is the time after which top requests the percentiles again. The proxy computes new
// percentiles once a minute.
const historyAge = 20 * time.Second

// An ioHistory is the last result of spdkgate_get_io_history.
type ioHistory struct {
	taken time.Time
	bdevs []spdkrpc.ProxyBdevIO
}

// read returns the I/O of all bdevs in the last minute. It returns nil if there is no proxy, if the
// proxy records no history, or if the user is not permitted to read it.
func (h *ioHistory) read(ctx context.Context, r *remote) []spdkrpc.ProxyBdevIO {
	if time.Since(h.taken) < historyAge {
		return h.bdevs
	}
	h.taken, h.bdevs = time.Now(), nil
	if raw, err := r.ask(ctx, "spdkgate_get_io_history", nil); err == nil && json.Unmarshal(raw, &h.bdevs) != nil {
		h.bdevs = nil
	}
	return h.bdevs
}
