// Package initiator is a small NVMe/TCP host for one namespace, with one command at a time.
//
// The host handles ANA like Linux's native multipath: a command to a namespace without an
// accessible path does not fail, but waits until a path is accessible again. The host supports no
// keep-alive, no authentication and no digests.
package initiator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Target is an exported subsystem, and the host that connects to it.
type Target struct {
	Address string // host:port
	NQN     string
	HostNQN string
}

// A Device is a connected namespace. It implements io.ReaderAt and io.WriterAt. Offsets and lengths
// must be multiples of its block size.
type Device struct {
	BlockSize int64
	Blocks    int64

	mu     sync.Mutex
	admin  *queue
	io     *queue
	waited int
}

const nsid = 1

// Status codes with their types, as in completions.
const (
	statusPathInaccessible = 0x302
	statusPathTransition   = 0x303
	statusNotReady         = 0x082
	doNotRetry             = 0x4000
)

type statusError uint16

func (s statusError) Error() string {
	return fmt.Sprintf("NVMe status type %#x, code %#x, do not retry %t", uint16(s>>8&7), uint16(s&0xff), s&doNotRetry != 0)
}

// Connect connects to namespace 1 of a subsystem.
func Connect(t Target) (*Device, error) {
	d := &Device{}
	if err := d.connect(t); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s at %s: %w", t.NQN, t.Address, err), d.Close())
	}
	return d, nil
}

func (d *Device) connect(t Target) (err error) {
	if d.admin, err = dial(t.Address); err != nil {
		return err
	}
	id, err := d.admin.fabricsConnect(t, 0, 0xffff)
	if err != nil {
		return err
	}
	if err := d.enable(); err != nil {
		return err
	}
	if d.io, err = dial(t.Address); err != nil {
		return err
	}
	if _, err := d.io.fabricsConnect(t, 1, id); err != nil {
		return err
	}
	identify := make([]byte, 4096)
	sqe := command(0x06, nsid)
	if err := finish(d.admin.run(sqe, nil, identify)); err != nil {
		return fmt.Errorf("identify namespace: %w", err)
	}
	d.Blocks = int64(binary.LittleEndian.Uint64(identify))
	format := identify[128+4*int(identify[26]&0xf):]
	d.BlockSize = 1 << format[2]
	if d.Blocks == 0 {
		return errors.New("there is no namespace 1")
	}
	return nil
}

// fabricsConnect sends the Connect command, which makes the connection an NVMe queue, and returns
// the controller's id.
func (q *queue) fabricsConnect(t Target, qid, controller uint16) (uint16, error) {
	data := make([]byte, 1024)
	copy(data, hostID[:])
	binary.LittleEndian.PutUint16(data[16:], controller)
	copy(data[256:512], t.NQN)
	copy(data[512:768], t.HostNQN)
	sqe := command(0x7f, 0)
	sqe[4] = 0x01 // Connect
	binary.LittleEndian.PutUint16(sqe[42:], qid)
	binary.LittleEndian.PutUint16(sqe[44:], 31) // queue size minus one
	c, err := q.run(sqe, data, nil)
	if err = finish(c, err); err != nil {
		return 0, fmt.Errorf("queue %d: %w", qid, err)
	}
	return uint16(c.value), nil
}

var hostID = [16]byte{'s', 'p', 'd', 'k', 'g', 'a', 't', 'e', '-', 't', 'e', 's', 't', 'h', 's', 't'}

// enable enables the controller and waits until it is ready.
func (d *Device) enable() error {
	const cc, csts = 0x14, 0x1c
	sqe := command(0x7f, 0)
	binary.LittleEndian.PutUint32(sqe[44:], cc)
	binary.LittleEndian.PutUint64(sqe[48:], 1|6<<16|4<<20)
	if err := finish(d.admin.run(sqe, nil, nil)); err != nil {
		return fmt.Errorf("enable the controller: %w", err)
	}
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
		sqe := command(0x7f, 0)
		sqe[4] = 0x04 // Property Get
		binary.LittleEndian.PutUint32(sqe[44:], csts)
		c, err := d.admin.run(sqe, nil, nil)
		if err = finish(c, err); err != nil {
			return fmt.Errorf("read the controller's status: %w", err)
		}
		if c.value&1 != 0 {
			return nil
		}
	}
	return errors.New("the controller did not become ready")
}

func command(opcode byte, ns uint32) *[64]byte {
	sqe := new([64]byte)
	sqe[0] = opcode
	binary.LittleEndian.PutUint32(sqe[4:], ns)
	return sqe
}

func finish(c completion, err error) error {
	if err != nil {
		return err
	}
	return c.err()
}

// Close disconnects.
func (d *Device) Close() error {
	var errs []error
	for _, q := range []*queue{d.io, d.admin} {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

// Bytes returns the size of the namespace.
func (d *Device) Bytes() int64 { return d.Blocks * d.BlockSize }

// WriteAt writes b at an offset. It waits while the path is inaccessible.
func (d *Device) WriteAt(b []byte, at int64) (int, error) { return d.transfer(0x01, b, nil, at) }

// ReadAt fills b with the data at an offset. It waits while the path is inaccessible.
func (d *Device) ReadAt(b []byte, at int64) (int, error) { return d.transfer(0x02, nil, b, at) }

// Waited returns the number of commands that had to wait because of an inaccessible path.
func (d *Device) Waited() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waited
}

// transfer reads or writes with one command of at most 128 KiB, SPDK's default limit.
func (d *Device) transfer(opcode byte, out, in []byte, at int64) (int, error) {
	n := int64(len(out) + len(in))
	if at%d.BlockSize != 0 || n%d.BlockSize != 0 || n == 0 || n > 128<<10 {
		return 0, fmt.Errorf("cannot transfer %d bytes at %d: want whole blocks of %d bytes, at most 128 KiB", n, at, d.BlockSize)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for waited := false; ; {
		sqe := command(opcode, nsid)
		binary.LittleEndian.PutUint64(sqe[40:], uint64(at/d.BlockSize))
		binary.LittleEndian.PutUint32(sqe[48:], uint32(n/d.BlockSize-1))
		c, err := d.io.run(sqe, out, in)
		if err != nil {
			return 0, err
		}
		switch c.status &^ doNotRetry {
		case 0:
			return int(n), nil
		case statusPathInaccessible, statusPathTransition, statusNotReady:
			if !waited {
				waited = true
				d.waited++
			}
			time.Sleep(time.Millisecond) // Linux waits for the target's ANA change event instead, but polling has the same effect
		default:
			return 0, c.err()
		}
	}
}
