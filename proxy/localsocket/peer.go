package localsocket

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Unmapped is the uid or gid that the kernel reports for users and groups outside this process's
// user namespace, such as a namespace created by systemd's PrivateUsers=. It does not identify a
// user.
const Unmapped = 65534

// A Peer is the process at the other end of a connection, as recorded by the kernel when that
// process connected or began to listen.
type Peer struct {
	PID    int32
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups; nil if the kernel does not report them (before Linux 4.13)
}

// PeerOf returns the process at the other end of a UNIX socket.
func PeerOf(c net.Conn) (p Peer, err error) {
	err = control(c, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return fmt.Errorf("SO_PEERCRED: %w", err)
		}
		p = Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}
		p.Groups, err = peerGroups(fd)
		return err
	})
	return p, err
}

// HungUp reports whether the other end of a UNIX socket is closed. An end that is shut down only
// for writing does not count, because its process can still read.
func HungUp(c net.Conn) bool {
	hungUp := false
	_ = control(c, func(fd int) error {
		fds := []unix.PollFd{{Fd: int32(fd)}} // poll always reports POLLHUP
		n, err := unix.Poll(fds, 0)
		hungUp = err == nil && n == 1 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
		return err
	})
	return hungUp
}

func control(c net.Conn, f func(fd int) error) error {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("it is not a UNIX socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}
