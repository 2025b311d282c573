package initiator

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// PDU types of NVMe/TCP.
const (
	pduICReq       = 0x00
	pduICResp      = 0x01
	pduCapsuleCmd  = 0x04
	pduCapsuleResp = 0x05
	pduH2CData     = 0x06
	pduC2HData     = 0x07
	pduR2T         = 0x09
)

// maxInCapsule is the maximum size of the data within a command. The value is SPDK's default.
// Connect sends 1,024 bytes.
const maxInCapsule = 4096

// A queue is one connection, with one command at a time.
type queue struct {
	net.Conn
	r *bufio.Reader
}

// A completion is the result of a command.
type completion struct {
	value  uint32 // the first double word
	status uint16 // without the phase bit
}

// err returns nil for success, or the status as an error.
func (c completion) err() error {
	if c.status == 0 {
		return nil
	}
	return statusError(c.status)
}

func dial(address string) (*queue, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	q := &queue{c, bufio.NewReaderSize(c, 1<<17)}
	req := make([]byte, 128)
	header(req, pduICReq, 0, 128, 0, 128)
	if _, err := q.Write(req); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	kind, _, _, err := q.pdu()
	if err == nil && kind != pduICResp {
		err = fmt.Errorf("the target responded to ICReq with a PDU of type %#x", kind)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return q, nil
}

func header(b []byte, kind, flags, hlen, pdo byte, plen int) {
	b[0], b[1], b[2], b[3] = kind, flags, hlen, pdo
	binary.LittleEndian.PutUint32(b[4:], uint32(plen))
}

// pdu reads the next PDU's header; the caller reads the data that follows.
func (q *queue) pdu() (kind byte, head []byte, data int, err error) {
	var common [8]byte
	if _, err := io.ReadFull(q.r, common[:]); err != nil {
		return 0, nil, 0, err
	}
	hlen, pdo, plen := int(common[2]), int(common[3]), int(binary.LittleEndian.Uint32(common[4:]))
	length := max(hlen, pdo)
	if hlen < 8 || plen < length {
		return 0, nil, 0, fmt.Errorf("the target sent a PDU of type %#x with header length %d, data offset %d, length %d", common[0], hlen, pdo, plen)
	}
	head = make([]byte, length)
	copy(head, common[:])
	_, err = io.ReadFull(q.r, head[8:])
	return common[0], head, plen - length, err
}

// run sends a command and waits for its completion. out is the data for the target, and in is the
// buffer for the data from the target.
func (q *queue) run(sqe *[64]byte, out, in []byte) (completion, error) {
	inCapsule := len(out) > 0 && len(out) <= maxInCapsule
	sqe[1] = 0x40 // data is described by an SGL
	if inCapsule {
		binary.LittleEndian.PutUint64(sqe[24:], 0)
		binary.LittleEndian.PutUint32(sqe[32:], uint32(len(out)))
		sqe[39] = 0x01 // data block, at an offset in the capsule
	} else if n := len(out) + len(in); n > 0 {
		binary.LittleEndian.PutUint64(sqe[24:], 0)
		binary.LittleEndian.PutUint32(sqe[32:], uint32(n))
		sqe[39] = 0x5a // transport's data block
	}
	capsule := make([]byte, 72, 72+len(out))
	copy(capsule[8:], sqe[:])
	if inCapsule {
		header(capsule, pduCapsuleCmd, 0, 72, 72, 72+len(out))
		capsule = append(capsule, out...)
	} else {
		header(capsule, pduCapsuleCmd, 0, 72, 0, 72)
	}
	if _, err := q.Write(capsule); err != nil {
		return completion{}, err
	}
	for {
		kind, head, n, err := q.pdu()
		if err != nil {
			return completion{}, err
		}
		switch kind {
		case pduCapsuleResp:
			return completion{binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint16(head[8+14:]) >> 1}, nil
		case pduC2HData:
			at := int(binary.LittleEndian.Uint32(head[12:]))
			if at+n > len(in) {
				return completion{}, fmt.Errorf("the target sent %d bytes at %d, but the command reads %d bytes", n, at, len(in))
			}
			if _, err := io.ReadFull(q.r, in[at:at+n]); err != nil {
				return completion{}, err
			}
			if head[1]&0x08 != 0 { // SUCCESS flag: no response capsule follows
				return completion{}, nil
			}
		case pduR2T:
			at, length := int(binary.LittleEndian.Uint32(head[12:])), int(binary.LittleEndian.Uint32(head[16:]))
			if at+length > len(out) {
				return completion{}, fmt.Errorf("the target requested %d bytes at %d of %d", length, at, len(out))
			}
			data := make([]byte, 24, 24+length)
			header(data, pduH2CData, 0x04, 24, 24, 24+length)
			copy(data[8:12], head[8:12])
			binary.LittleEndian.PutUint32(data[12:], uint32(at))
			binary.LittleEndian.PutUint32(data[16:], uint32(length))
			if _, err := q.Write(append(data, out[at:at+length]...)); err != nil {
				return completion{}, err
			}
		default:
			return completion{}, fmt.Errorf("the target sent a PDU of type %#x", kind)
		}
	}
}
