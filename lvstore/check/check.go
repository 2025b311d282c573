package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/device"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Result is the result of checking one lvstore.
type Result struct {
	Store string // name of the lvstore; "" if a file or device was checked without a target
	UUID  string
	Bdev  string // bdev that contains the lvstore
	Place string // the file or device, for messages
	// Unchecked is the reason why the lvstore could not be checked, or nil. If it is not nil, the
	// report is empty.
	Unchecked error
	Report    blobstore.Report
}

// Damaged reports whether damage was found.
func (r Result) Damaged() bool { return len(r.Report.Findings) > 0 }

// passes configures checks of a running target. Damage that is found in every pass is not caused by
// the target writing between passes.
var passes = blobstore.Options{Passes: 3, Pause: 300 * time.Millisecond}

// Target checks all lvstores of a running target.
func Target(ctx context.Context, rpc *spdkrpc.Client, quick bool) ([]Result, error) {
	stores, err := rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	if err != nil {
		return nil, fmt.Errorf("list the lvstores: %w", err)
	}
	var list []Result
	for _, s := range stores {
		r := Result{Store: s.Name, UUID: s.UUID, Bdev: s.BaseBdev}
		r.Unchecked = r.check(ctx, rpc, quick)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

func (r *Result) check(ctx context.Context, rpc *spdkrpc.Client, quick bool) error {
	bdevs, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &r.Bdev})
	if err != nil {
		return fmt.Errorf("describe bdev %s: %w", r.Bdev, err)
	}
	if len(bdevs) != 1 {
		return fmt.Errorf("bdev %s does not exist", r.Bdev)
	}
	d, err := device.Open(ctx, rpc, bdevs[0])
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	r.Place = d.Place
	o := passes
	o.Quick = quick
	if r.Report, err = blobstore.Check(ctx, d, d.Size, o); err != nil {
		return fmt.Errorf("%s: %w", d.Place, err)
	}
	if !quick {
		return r.compare(ctx, rpc, d, o)
	}
	return nil
}

// compare compares the metadata in the target's memory with the metadata on the device, which the
// target loads at its next start. The metadata of a volume changes while hosts write to it, so
// compare reports only differences that persist.
func (r *Result) compare(ctx context.Context, rpc *spdkrpc.Client, d *device.Device, o blobstore.Options) error {
	first, err := r.differences(ctx, rpc, r.Report)
	if err != nil || len(first) == 0 {
		return err
	}
	again, err := blobstore.Check(ctx, d, d.Size, o)
	if err != nil {
		return err
	}
	second, err := r.differences(ctx, rpc, again)
	if err != nil {
		return err
	}
	for _, problem := range first {
		if slices.Contains(second, problem) {
			r.Report.Findings = append(r.Report.Findings, blobstore.Finding{Page: -1, What: problem})
		}
	}
	return nil
}

func (r *Result) differences(ctx context.Context, rpc *spdkrpc.Client, report blobstore.Report) (list []string, err error) {
	lvols, err := rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{LvsName: &r.Store})
	if err != nil {
		return nil, fmt.Errorf("list the volumes of %s: %w", r.Store, err)
	}
	for _, l := range lvols {
		if on, ok := report.Allocated[l.UUID]; ok && l.NumAllocatedClusters != nil && on != *l.NumAllocatedClusters {
			list = append(list, fmt.Sprintf("%q (%s) has %d clusters in the running target, but %d on the device: the target will use the number on the device after its next start",
				l.Name, l.UUID, *l.NumAllocatedClusters, on))
		}
	}
	return list, nil
}

// File checks a device or an image, even while a target is using it.
func File(ctx context.Context, path string, quick bool) Result {
	r := Result{Place: path}
	d, err := device.OpenFile(path)
	if err != nil {
		r.Unchecked = err
		return r
	}
	defer func() { _ = d.Close() }()
	o := passes
	o.Quick = quick
	if r.Report, err = blobstore.Check(ctx, d, d.Size, o); err != nil {
		r.Unchecked = fmt.Errorf("%s: %w", path, err)
	}
	return r
}
