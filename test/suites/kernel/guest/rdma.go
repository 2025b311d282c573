package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// guestAddress is the guest's own address. RDMA over Ethernet needs an interface that has an
// address and is not the loopback interface.
const guestAddress = "10.0.2.15"

// newRDMATarget returns an nvmet that is reachable over RDMA, which the kernel emulates on the
// guest's network (soft RoCE).
func newRDMATarget() *nvmeTarget {
	t := newNVMeTarget()
	t.transport, t.address = "rdma", guestAddress
	return t
}

// These values form the message that `rdma link add` sends to add a device
// (linux/include/uapi/rdma/rdma_netlink.h).
const (
	rdmaNewLink  = 5<<10 + 3 // RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK
	rdmaDevName  = 2
	rdmaNetdev   = 51
	rdmaLinkType = 65
)

// addRDMADevice creates an RDMA device on the guest's network interface.
func addRDMADevice() (err error) {
	if err := modprobe("crc32_generic", "rdma_rxe", "nvmet-rdma"); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_RDMA)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var body []byte
	for _, a := range []struct {
		kind  uint16
		value string
	}{{rdmaDevName, "rxe0"}, {rdmaLinkType, "rxe"}, {rdmaNetdev, "eth0"}} {
		body = binary.NativeEndian.AppendUint16(body, uint16(unix.SizeofNlAttr+len(a.value)+1))
		body = binary.NativeEndian.AppendUint16(body, a.kind)
		body = append(append(body, a.value...), 0)
		body = append(body, make([]byte, -len(body)&3)...)
	}
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, rdmaNewLink)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	message = append(append(message, make([]byte, 8)...), body...) // sequence and port: 0
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("add an RDMA device: %w", err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	switch {
	case err != nil:
		return fmt.Errorf("add an RDMA device: %w", err)
	case n < unix.SizeofNlMsghdr+4:
		return fmt.Errorf("add an RDMA device: a response of %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("add an RDMA device: %w", unix.Errno(-code))
	}
	return nil
}
