package target

import (
	"errors"
	"fmt"
	"net"
	"os"
	osuser "os/user"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// checkPeer makes the check that whoever listens at the socket may be the target:
// root, this process's own user, or one of uids. SPDK's default socket lies in a
// folder where everybody may put one while spdk_tgt is away, and would be sent
// what was meant for SPDK, secrets included.
func checkPeer(uids []uint32) func(net.Conn) error { return trust(trusted(uids)...) }

func trusted(uids []uint32) []uint32 { return append([]uint32{0, uint32(os.Geteuid())}, uids...) }

func trust(uids ...uint32) func(net.Conn) error {
	return func(c net.Conn) error {
		uid, err := peerUID(c)
		if err != nil {
			return fmt.Errorf("whoever listens there cannot be told: %w", err)
		}
		switch {
		case uid == unmapped:
			return fmt.Errorf("%w: who listens there cannot be told, as this process's user namespace does not show that user (or it is nobody). If spdk_tgt runs as neither root nor "+
				"the proxy's user, run the proxy without one: PrivateUsers=no in a drop-in for its unit", errStranger)
		case slices.Contains(uids, uid):
			return nil
		}
		return fmt.Errorf("%w: %s listens there. If spdk_tgt runs as that user, name it in target.peer_users; "+
			"otherwise somebody took the target's place: find out who, and move the socket to a folder where only spdk_tgt's user may write", errStranger, nameOf(uid))
	}
}

// unmapped is how the kernel shows all users who are not in this process's user
// namespace, as systemd's PrivateUsers= makes one. So it is nobody in particular,
// and is never trusted, whoever names it.
const unmapped = 65534

var errStranger = errors.New("nothing was sent to a stranger")

// peerUID is the user that a UNIX socket's other end listened as.
func peerUID(c net.Conn) (uint32, error) {
	unixConn, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("it is no UNIX socket")
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, fmt.Errorf("SO_PEERCRED: %w", failed)
	}
	return cred.Uid, nil
}

func nameOf(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := osuser.LookupId(id); err == nil {
		return fmt.Sprintf("user %s (%s)", u.Username, id)
	}
	return "user " + id
}
