package localsocket

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is the maximum number of supplementary groups of a Linux process.
const maxGroups = 65536

// peerGroups reads SO_PEERGROUPS, for which package unix has no function.
func peerGroups(fd int) ([]uint32, error) {
	for groups := make([]uint32, 32); ; {
		size := uint32(len(groups)) * uint32(unsafe.Sizeof(groups[0]))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		n := int(size) / int(unsafe.Sizeof(groups[0]))
		switch {
		case errno == 0:
			return groups[:n], nil
		case errors.Is(errno, unix.ENOPROTOOPT):
			return nil, nil
		case !errors.Is(errno, unix.ERANGE) || n <= len(groups) || n > maxGroups:
			return nil, fmt.Errorf("SO_PEERGROUPS: %w", errno)
		}
		groups = make([]uint32, n)
	}
}
