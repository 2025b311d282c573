package connect

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"
)

// nvmeStatus is the status code type and status code of an NVMe completion (NVMe Base
// Specification, "Status Field"), such as 0x184.
type nvmeStatus uint16

// These are statuses of the Fabrics Connect command (NVMe Base Specification, "Connect Response").
const (
	statusSuccess      nvmeStatus = 0
	statusInvalidParam nvmeStatus = 0x182
	statusInvalidHost  nvmeStatus = 0x184
	statusAuthRequired nvmeStatus = 0x191
)

// mustAuthenticate is probeConnect's result for a target that accepts the host but requires it to
// authenticate next. It is not an NVMe status, because a status has only 11 bits.
const mustAuthenticate nvmeStatus = 0x8000

// Sizes and types of NVMe/TCP PDUs (NVMe TCP Transport Specification).
const (
	pduICReq       = 0x00
	pduICResp      = 0x01
	pduCapsuleCmd  = 0x04
	pduCapsuleResp = 0x05

	headerSize      = 8
	icSize          = 128
	commandSize     = 72
	connectDataSize = 1024
)

// probeConnect sends the target one Fabrics Connect for the admin queue, as this host, and returns
// the status of the response. If the target accepts the host, the association ends with the TCP
// connection.
func probeConnect(ctx context.Context, address, port, nqn string, h Host) (nvmeStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(initializeRequest()); err != nil {
		return 0, fmt.Errorf("send NVMe/TCP ICReq: %w", err)
	}
	if _, err := readPDU(conn, pduICResp, icSize); err != nil {
		return 0, err
	}
	command, err := connectCommand(nqn, h)
	if err != nil {
		return 0, err
	}
	if _, err := conn.Write(command); err != nil {
		return 0, fmt.Errorf("send NVMe/TCP connect: %w", err)
	}
	response, err := readPDU(conn, pduCapsuleResp, headerSize+16)
	if err != nil {
		return 0, err
	}
	// Bit 0 of the completion's last word is the phase tag. An 8-bit status code and a 3-bit status
	// code type follow.
	status := nvmeStatus(binary.LittleEndian.Uint16(response[headerSize+14:]) >> 1 & 0x7ff)
	const authenticationRequired = 0x06 // bits 17 and 18 of the first word: ATR and ASCR
	if status == statusSuccess && response[headerSize+2]&authenticationRequired != 0 {
		return mustAuthenticate, nil
	}
	return status, nil
}

func header(kind byte, headerLen, dataOffset, total int) []byte {
	b := make([]byte, total)
	b[0], b[2], b[3] = kind, byte(headerLen), byte(dataOffset)
	binary.LittleEndian.PutUint32(b[4:], uint32(total))
	return b
}

// initializeRequest returns an ICReq for PDU format 0, no digests and no alignment: all zero.
func initializeRequest() []byte { return header(pduICReq, icSize, 0, icSize) }

func connectCommand(nqn string, h Host) ([]byte, error) {
	const (
		opcodeFabrics  = 0x7f
		fabricsConnect = 0x01
		useSGL         = 0x40
		sglInCapsule   = 0x01 // data block, address is an offset into the capsule
		queueSize      = 31   // entries, counted from 0
		anyController  = 0xffff
	)
	hostID, err := uuid.Parse(h.UUID)
	if err != nil {
		return nil, fmt.Errorf("host identifier: %w", err)
	}
	pdu := header(pduCapsuleCmd, commandSize, commandSize, commandSize+connectDataSize)
	command, data := pdu[headerSize:commandSize], pdu[commandSize:]
	command[0], command[1], command[4] = opcodeFabrics, useSGL, fabricsConnect
	binary.LittleEndian.PutUint32(command[32:], connectDataSize)
	command[39] = sglInCapsule
	binary.LittleEndian.PutUint16(command[44:], queueSize)
	copy(data, hostID[:])
	binary.LittleEndian.PutUint16(data[16:], anyController)
	copy(data[256:511], nqn)
	copy(data[512:767], h.NQN)
	return pdu, nil
}

func readPDU(r io.Reader, kind byte, size int) ([]byte, error) {
	pdu := make([]byte, size)
	if _, err := io.ReadFull(r, pdu); err != nil {
		return nil, fmt.Errorf("read NVMe/TCP response: %w", err)
	}
	if got := binary.LittleEndian.Uint32(pdu[4:]); pdu[0] != kind || got != uint32(size) {
		return nil, fmt.Errorf("the server at this address does not speak NVMe/TCP as expected (received PDU type %#x with %d bytes, expected %#x with %d)", pdu[0], got, kind, size)
	}
	return pdu, nil
}
