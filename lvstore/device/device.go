package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ErrRead means that the device failed to return its content.
var ErrRead = errors.New("the disk returned a read error")

// ErrNotReadable means that neither this host nor the target can read an lvstore's bdev directly.
var ErrNotReadable = errors.New("cannot be read while the target runs")

// A Device is a file, a block device, or an NVMe namespace. Offsets and lengths of reads must be
// multiples of 4 KiB. A Device is safe for concurrent use.
type Device struct {
	io.ReaderAt
	io.Closer
	Size  int64  // in bytes
	Place string // its location, for messages
}

// Open opens the device that contains a bdev of the target that rpc calls. Canceling ctx cancels
// all reads through the target, even after Open has returned.
func Open(ctx context.Context, rpc *spdkrpc.Client, b spdkrpc.BdevInfo) (*Device, error) {
	s := b.DriverSpecific
	switch {
	case s.AIO != nil:
		return openFileOf(b, s.AIO.Filename)
	case s.Uring != nil:
		return openFileOf(b, s.Uring.Filename)
	case len(s.NVMe) > 0:
		return openNVMe(ctx, rpc, b)
	}
	return nil, fmt.Errorf("%w: bdev %s is a %q; only files and block devices (AIO, io_uring) and NVMe namespaces can be read", ErrNotReadable, b.Name, b.ProductName)
}

// openFileOf opens the file or block device of a bdev. A relative path is refused: the working
// directory of this process may contain another file with that name.
func openFileOf(b spdkrpc.BdevInfo, path string) (*Device, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: bdev %s was created with the relative path %q; create it with an absolute path", ErrNotReadable, b.Name, path)
	}
	return OpenFile(path)
}
