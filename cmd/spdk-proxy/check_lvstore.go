package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/check"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var errDamaged = errors.New("an lvstore is damaged")

// errUnchecked only sets the exit code; the reasons have already been printed.
var errUnchecked = errors.New("some checks were not possible")

type checkLvstore struct {
	socket     string
	quick      bool
	repairPage string
	name, uuid string
}

func newCheckLvstore() *cobra.Command {
	var o checkLvstore
	cmd := &cobra.Command{
		Use:   "check-lvstore [DEVICE]...",
		Short: "Check lvstores for damaged metadata",
		Long: `Check the lvstores of the target at --socket for damaged metadata, or those on devices
and images (also while the target is down). The command writes nothing to them.

A snapshot of a volume that is being written can overwrite the page that describes
the lvstore. The target notices this only at its next start, and then does not load
the lvstore. Until then all data can be read: repair a damaged lvstore, or copy its
volumes, before the target ends.

Run it on the target's host, as a user who can read the disks (usually root). It reads
files and block devices (AIO, io_uring) directly, and NVMe namespaces through the
target. It reads all metadata pages; with --quick, only the page that describes the
lvstore.

--repair-page writes the correct content of that page to a file, and prints the command
that puts it into place.

Exit codes: 0 no damage found; 1 something could not be checked; 2 a mistake on the
command line; 3 the target is unreachable; 6 damage found.`,
		Example: `  spdk-proxy check-lvstore --socket /var/tmp/spdk.sock
  spdk-proxy check-lvstore --socket /var/tmp/spdk.sock --repair-page /root/page
  spdk-proxy check-lvstore /dev/sdb`,
		RunE: func(cmd *cobra.Command, devices []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			list, err := o.check(ctx, devices)
			if err != nil {
				return err
			}
			return o.report(cmd.OutOrStdout(), list)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", "", "path of the target's socket")
	f.BoolVar(&o.quick, "quick", false, "read only the page that describes the lvstore")
	f.StringVar(&o.repairPage, "repair-page", "", "file to create with the correct content of that page, if it is damaged")
	f.StringVar(&o.name, "name", "", "name of the lvstore, with --repair-page and a DEVICE")
	f.StringVar(&o.uuid, "uuid", "", "UUID of the lvstore, with --repair-page and a DEVICE")
	return cmd
}

func (o checkLvstore) check(ctx context.Context, devices []string) ([]check.Result, error) {
	if (o.socket == "") == (len(devices) == 0) {
		return nil, usage("give either --socket of a target on this host, or devices")
	}
	if (o.name == "") != (o.uuid == "") || o.name != "" && (len(devices) != 1 || o.repairPage == "") {
		return nil, usage("--name and --uuid go together, with --repair-page and one DEVICE")
	}
	if o.socket != "" {
		socket := spdkrpc.NewSocket(o.socket)
		defer func() { _ = socket.Close() }()
		return check.Target(ctx, spdkrpc.NewClient(socket), o.quick)
	}
	var list []check.Result
	for _, d := range devices {
		r := check.File(ctx, d, o.quick)
		r.Store, r.UUID = o.name, o.uuid
		list = append(list, r)
	}
	return list, ctx.Err()
}

// report prints the results. The returned error only sets the exit code.
func (o checkLvstore) report(w io.Writer, list []check.Result) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "the target has no lvstore")
		return err
	}
	var failed error
	repaired := false
	for _, r := range list {
		where := cmp.Or(r.Place, "bdev "+r.Bdev)
		if r.Store != "" {
			where = fmt.Sprintf("lvstore %s (%s) on %s", r.Store, r.UUID, where)
		}
		where = printable.String(where)
		switch {
		case r.Unchecked != nil:
			fmt.Fprintf(w, "%s: not checked: %s\n", where, printable.String(r.Unchecked.Error()))
			if failed == nil {
				failed = errUnchecked
			}
			continue
		case !r.Damaged():
			fmt.Fprintf(w, "%s: no damage found, %d metadata pages read\n", where, r.Report.Pages)
			continue
		}
		failed = errDamaged
		fmt.Fprintf(w, "%s: DAMAGED. Do not stop or restart the target, and take no snapshots. Copy the data of the volumes to another store, or repair this one.\n", where)
		for _, f := range r.Report.Findings {
			if f.Page < 0 {
				fmt.Fprintf(w, "  %s\n", printable.String(f.What))
				continue
			}
			fmt.Fprintf(w, "  metadata page %d, at byte %d: %s\n", f.Page, f.Offset, printable.String(f.What))
		}
		if r.Report.Findings[0].Super && o.repairPage != "" && !repaired {
			if err := o.writePage(w, r); err != nil {
				return err
			}
			repaired = true
		} else if r.Report.Findings[0].Super {
			fmt.Fprintln(w, "  --repair-page creates a replacement for this page.")
		}
	}
	return failed
}

// writePage writes the metadata page that repairs an lvstore to a file.
func (o checkLvstore) writePage(w io.Writer, r check.Result) error {
	if r.Store == "" {
		return usage("--repair-page needs the lvstore's --name and --uuid, because the device no longer has them")
	}
	page, offset, err := blobstore.SuperPage(r.Report.Super, r.UUID, r.Store)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(o.repairPage, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--repair-page must name a file that does not exist: %w", err)
	}
	_, err = f.Write(page)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "  %s has the correct content of this page. Write it to the device, then check again:\n    dd if=%s of=%s bs=%d seek=%d count=1 conv=notrunc oflag=direct\n",
		o.repairPage, o.repairPage, r.Place, blobstore.PageSize, offset/blobstore.PageSize)
	return err
}
