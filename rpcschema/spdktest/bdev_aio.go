package spdktest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An aio bdev is backed by a file on the target's host. The simulation opens this file. The file's
// size determines the bdev's size, and an lvstore writes its mark to the file.
type aio struct {
	path     string
	override bool // whether the call specified the block size
	params   spdkrpc.BdevAIOCreateParams
}

func (a *aio) describe(_ *engine, b *bdev, info *spdkrpc.BdevInfo) {
	info.ProductName = "AIO disk"
	info.SupportedIOTypes.WriteZeroes, info.SupportedIOTypes.Flush = true, true
	info.SupportedIOTypes.Unmap = value(a.params.Fallocate)
	info.DriverSpecific.AIO = &spdkrpc.BdevDriverAIO{
		Filename: a.params.Filename, BlockSizeOverride: a.override, ReadOnly: b.readOnly,
		Fallocate: new(value(a.params.Fallocate)), Nowait: new(value(a.params.Nowait)),
	}
}

// config returns the call that recreates the bdev.
func (a *aio) config(b *bdev) spdkrpc.BdevAIOCreateParams {
	p := spdkrpc.BdevAIOCreateParams{
		Name: b.name, Filename: a.params.Filename, ReadOnly: new(b.readOnly), UUID: new(b.uuid),
		Fallocate: new(value(a.params.Fallocate)), Nowait: new(value(a.params.Nowait)),
	}
	if a.override {
		p.BlockSize = new(b.blockSize)
	}
	return p
}

func init() {
	handle("bdev_aio_create", (*engine).bdevAioCreate)
	confirm("bdev_aio_delete", func(e *engine, p spdkrpc.BdevAIODeleteParams) error { return removeOfKind[*aio](e, p.Name) })
	confirm("bdev_aio_rescan", (*engine).bdevAioRescan)
}

func (e *engine) bdevAioCreate(p spdkrpc.BdevAIOCreateParams) (string, error) {
	size, err := fileSize(p.Filename)
	if err != nil {
		return "", err
	}
	block := value(p.BlockSize)
	if block < 512 || block&(block-1) != 0 || size%uint64(block) != 0 {
		return "", errno(syscall.EINVAL)
	}
	path, err := filepath.Abs(p.Filename)
	if err != nil {
		return "", errno(syscall.EINVAL)
	}
	b := &bdev{
		name: p.Name, uuid: normalUUID(p.UUID), product: "AIO disk", blockSize: block, blocks: size / uint64(block), readOnly: value(p.ReadOnly),
		driver: &aio{path: path, override: true, params: p},
	}
	if err := e.bdevs.add(b); err != nil {
		return "", err
	}
	e.examine(b)
	return b.name, nil
}

// fileSize opens a file for reading and returns its size.
func fileSize(path string) (uint64, error) {
	info, err := os.Stat(path)
	var n syscall.Errno
	switch {
	case errors.As(err, &n):
		return 0, errno(n)
	case err != nil:
		return 0, errno(syscall.EINVAL)
	case info.IsDir():
		return 0, errno(syscall.EISDIR)
	case info.Mode()&os.ModeDevice != 0:
		f, err := os.Open(path)
		if err != nil {
			return 0, errno(syscall.EACCES)
		}
		defer f.Close()
		size, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return 0, errno(syscall.EINVAL)
		}
		return uint64(size), nil
	}
	return uint64(info.Size()), nil
}

// findOfKind returns the bdev of one kind with the given name.
func findOfKind[D driver](e *engine, name string) (*bdev, D, error) {
	var none D
	b, ok := e.bdevs.find(name)
	if !ok {
		return nil, none, errno(syscall.ENODEV)
	}
	d, ok := b.driver.(D)
	if !ok {
		return nil, none, errno(syscall.ENODEV)
	}
	return b, d, nil
}

// bdevAioRescan grows a bdev to the size of its file. It returns an error if the file has become
// smaller.
func (e *engine) bdevAioRescan(p spdkrpc.BdevAIORescanParams) error {
	b, a, err := findOfKind[*aio](e, p.Name)
	if err != nil {
		return err
	}
	size, err := fileSize(a.path)
	if err != nil {
		return err
	}
	blocks := size / uint64(b.blockSize)
	if blocks == 0 {
		e.bdevs.remove(b)
		return nil
	}
	if blocks < b.blocks {
		return errno(syscall.EBUSY) // the rescan itself opens the bdev
	}
	return e.resize(b, blocks)
}
