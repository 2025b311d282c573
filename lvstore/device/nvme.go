package device

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// openNVMe returns a Device that reads a namespace by having the target send NVMe Read commands.
func openNVMe(ctx context.Context, rpc *spdkrpc.Client, b spdkrpc.BdevInfo) (*Device, error) {
	nsid := b.DriverSpecific.NVMe[0].NSData.ID
	controller, ok := strings.CutSuffix(b.Name, fmt.Sprintf("n%d", nsid))
	if !ok || b.MDSize != nil && *b.MDSize > 0 || b.BlockSize == 0 || leastPiece%b.BlockSize != 0 {
		return nil, fmt.Errorf("%w: the name of bdev %s does not contain its controller's name, or its blocks have metadata", ErrNotReadable, b.Name)
	}
	n := &namespace{ctx: ctx, rpc: rpc, controller: controller, nsid: uint32(nsid), block: int64(b.BlockSize), inFlight: make(chan struct{}, maxInFlight)}
	var err error
	if n.piece, err = n.largestPiece(); err != nil {
		return nil, err
	}
	return &Device{n, io.NopCloser(nil), int64(b.NumBlocks) * int64(b.BlockSize), fmt.Sprintf("namespace %d of NVMe controller %s", nsid, controller)}, nil
}

const (
	// leastPiece is a number of bytes that every controller can transfer in one command.
	leastPiece = 4096
	// maxPiece is the maximum number of bytes that one command reads. If a command exceeds the
	// controller's limit, SPDK closes the connection, and the call never returns.
	maxPiece = 128 << 10
	// maxInFlight is the number of concurrent commands. A command takes two polls of SPDK's socket
	// (8 ms), however many commands are in flight.
	maxInFlight = 32
)

// A namespace is an NVMe namespace read through the target.
type namespace struct {
	ctx        context.Context // stored in the struct because io.ReaderAt takes no context
	rpc        *spdkrpc.Client
	controller string
	nsid       uint32
	block      int64
	piece      int // number of bytes per command
	inFlight   chan struct{}
}

// largestPiece asks the controller how many bytes one command may transfer (MDTS, in units of at
// least 4 KiB; 0 means no limit).
func (n *namespace) largestPiece() (int, error) {
	const identify, controller, mdts = 0x06, 1, 77
	var sqe [64]byte
	sqe[0] = identify
	sqe[40] = controller
	b := make([]byte, 4096)
	if err := n.send(spdkrpc.BdevNVMeCommandTypeAdmin, sqe, b); err != nil {
		return 0, fmt.Errorf("identify NVMe controller %s through the target: %w", n.controller, err)
	}
	if b[mdts] == 0 || b[mdts] >= 5 {
		return maxPiece, nil
	}
	return leastPiece << b[mdts], nil
}

func (n *namespace) ReadAt(b []byte, at int64) (int, error) {
	var g errgroup.Group
	g.SetLimit(maxInFlight)
	for done := 0; done < len(b); done += n.piece {
		g.Go(func() error { return n.read(b[done:min(done+n.piece, len(b))], at+int64(done)) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (n *namespace) read(b []byte, at int64) error {
	const read = 0x02
	var sqe [64]byte
	sqe[0] = read
	binary.LittleEndian.PutUint32(sqe[4:], n.nsid)
	binary.LittleEndian.PutUint64(sqe[40:], uint64(at/n.block))
	binary.LittleEndian.PutUint16(sqe[48:], uint16(int64(len(b))/n.block-1))
	if err := n.send(spdkrpc.BdevNVMeCommandTypeIO, sqe, b); err != nil {
		return fmt.Errorf("read %d bytes at %d through the target: %w", len(b), at, err)
	}
	return nil
}

// send sends a command and reads its data into b.
func (n *namespace) send(kind spdkrpc.BdevNVMeCommandType, sqe [64]byte, b []byte) error {
	select {
	case n.inFlight <- struct{}{}:
		defer func() { <-n.inFlight }()
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
	answer, err := n.rpc.BdevNVMeSendCmd(n.ctx, spdkrpc.BdevNVMeSendCmdParams{
		Name: n.controller, CmdType: kind, DataDirection: "c2h",
		Cmdbuf: base64.URLEncoding.EncodeToString(sqe[:]), DataLen: new(uint32(len(b))),
	})
	var rpc *spdkrpc.Error
	if errors.As(err, &rpc) && rpc.Code != 0 && (rpc.Kind == spdkrpc.Failed || rpc.Kind == spdkrpc.InvalidParams) {
		return fmt.Errorf("%w: %w", ErrRead, err) // the controller failed or was removed
	}
	if err != nil {
		return err
	}
	cqe, err := decode(answer.Cpl)
	if err == nil && len(cqe) != 16 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("a completion of %d bytes: %w", len(cqe), err)
	}
	if status := binary.LittleEndian.Uint16(cqe[14:]) >> 1; status != 0 {
		return fmt.Errorf("%w: NVMe status %#x", ErrRead, status)
	}
	var data []byte
	if answer.Data != nil {
		if data, err = decode(*answer.Data); err != nil {
			return err
		}
	}
	if len(data) != len(b) {
		return fmt.Errorf("%d bytes instead of %d: %w", len(data), len(b), io.ErrUnexpectedEOF)
	}
	copy(b, data)
	return nil
}

// decode decodes URL-safe base64, with or without padding.
func decode(s string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
}
