package check

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// openNVMe returns a namespace, which is read by NVMe Read commands that the target sends.
func openNVMe(ctx context.Context, rpc *spdkrpc.Client, b spdkrpc.BdevInfo) (*device, error) {
	nsid := b.DriverSpecific.NVMe[0].NSData.ID
	controller, ok := strings.CutSuffix(b.Name, fmt.Sprintf("n%d", nsid))
	if !ok || b.MDSize != nil && *b.MDSize > 0 || b.BlockSize == 0 || pieceBytes%b.BlockSize != 0 {
		return nil, fmt.Errorf("%w: the name of bdev %s does not contain its controller's, or its blocks have metadata", ErrNotReadable, b.Name)
	}
	n := &namespace{ctx, rpc, controller, uint32(nsid), int64(b.BlockSize)}
	return &device{n, io.NopCloser(nil), int64(b.NumBlocks) * int64(b.BlockSize), fmt.Sprintf("namespace %d of NVMe controller %s", nsid, controller)}, nil
}

// pieceBytes is the number of bytes that one command reads. All controllers support it, and the
// response stays small.
const pieceBytes = 4096

// A namespace is an NVMe namespace that is read through the target.
type namespace struct {
	ctx        context.Context // of the check, because io.ReaderAt has none
	rpc        *spdkrpc.Client
	controller string
	nsid       uint32
	block      int64
}

func (n *namespace) ReadAt(b []byte, at int64) (int, error) {
	for done := 0; done < len(b); done += pieceBytes {
		if err := n.piece(b[done:min(done+pieceBytes, len(b))], at+int64(done)); err != nil {
			return done, err
		}
	}
	return len(b), nil
}

func (n *namespace) piece(b []byte, at int64) error {
	const read = 0x02
	var sqe [64]byte
	sqe[0] = read
	binary.LittleEndian.PutUint32(sqe[4:], n.nsid)
	binary.LittleEndian.PutUint64(sqe[40:], uint64(at/n.block))
	binary.LittleEndian.PutUint16(sqe[48:], uint16(int64(len(b))/n.block-1))
	answer, err := n.rpc.BdevNVMeSendCmd(n.ctx, spdkrpc.BdevNVMeSendCmdParams{
		Name: n.controller, CmdType: spdkrpc.BdevNVMeCommandTypeIO, DataDirection: "c2h",
		Cmdbuf: base64.URLEncoding.EncodeToString(sqe[:]), DataLen: new(uint32(len(b))),
	})
	if err != nil {
		return fmt.Errorf("read %d bytes at %d through the target: %w", len(b), at, err)
	}
	cqe, err := decode(answer.Cpl)
	if err != nil || len(cqe) != 16 {
		return fmt.Errorf("read through the target: a completion of %d bytes: %w", len(cqe), err)
	}
	if status := binary.LittleEndian.Uint16(cqe[14:]) >> 1; status != 0 {
		return fmt.Errorf("read %d bytes at %d through the target: NVMe status %#x", len(b), at, status)
	}
	var data []byte
	if answer.Data != nil {
		if data, err = decode(*answer.Data); err != nil {
			return fmt.Errorf("read through the target: %w", err)
		}
	}
	if len(data) != len(b) {
		return fmt.Errorf("read through the target: %d bytes instead of %d: %w", len(data), len(b), io.ErrUnexpectedEOF)
	}
	copy(b, data)
	return nil
}

// decode decodes URL-safe base64, with or without padding.
func decode(s string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
}
