package execute

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// attachesFile lists the methods that create a bdev on a local file or block device.
var attachesFile = map[string]bool{"bdev_aio_create": true, "bdev_uring_create": true}

// attachFile creates a bdev on a file, unless another bdev already uses the file and both can write
// to it. SPDK accepts a second bdev, but writes through one bdev destroy an lvstore on the other.
// attachFile recognizes the file even under another path, such as a link. If this process has no
// access to the files, it compares only their paths.
func (e *Executor) attachFile(ctx context.Context, c Command) (json.RawMessage, error) {
	select { // the next call must see the bdev that this call creates
	case e.attaching <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-e.attaching }()
	name, _ := c.Params["name"].(string)
	path, _ := c.Params["filename"].(string)
	if readOnly, _ := c.Params["readonly"].(bool); readOnly {
		return e.forwardShared(ctx, c)
	}
	bdevs, err := ask[spdkrpc.BdevInfo](ctx, c, "bdev_get_bdevs", nil)
	if err != nil {
		return nil, err
	}
	for _, b := range bdevs {
		if used := fileOf(&b); used != "" && b.Name != name && sameFile(used, path) {
			return nil, &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
				Message: fmt.Sprintf("Invalid argument: bdev %s already uses this file (%s). Two bdevs with the same file overwrite each other's data. Nothing was executed. Use %s, or delete it first", b.Name, used, b.Name)}
		}
	}
	return e.forwardShared(ctx, c)
}

// fileOf returns the path of the file to which a bdev writes, or "" if there is none.
func fileOf(b *spdkrpc.BdevInfo) string {
	switch d := b.DriverSpecific; {
	case d.AIO != nil && !d.AIO.ReadOnly:
		return d.AIO.Filename
	case d.Uring != nil:
		return d.Uring.Filename
	}
	return ""
}

// sameFile reports whether two paths lead to the same file or block device.
func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	if err != nil {
		return false
	}
	if os.SameFile(first, second) {
		return true
	}
	x, isUnix := first.Sys().(*syscall.Stat_t)
	y, ok := second.Sys().(*syscall.Stat_t)
	const devices = os.ModeDevice | os.ModeCharDevice
	return isUnix && ok && first.Mode()&devices == os.ModeDevice && second.Mode()&devices == os.ModeDevice && x.Rdev == y.Rdev
}
