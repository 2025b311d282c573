package target

import (
	"errors"
	"fmt"
	"net"
	"os"
	osuser "os/user"
	"slices"
	"strconv"

	"github.com/spdkgate/spdkgate/proxy/localsocket"
)

// checkPeer returns a function that checks that the process listening at the socket belongs to
// root, to this process's user, or to one of uids. The check is necessary because, while spdk_tgt
// is not running, any user can create a socket in the directory of SPDK's default socket. That user
// would receive calls meant for SPDK, including secrets.
func checkPeer(uids []uint32) func(net.Conn) error { return requirePeer(trustedUIDs(uids)...) }

func trustedUIDs(uids []uint32) []uint32 {
	return append([]uint32{0, uint32(os.Geteuid())}, uids...)
}

func requirePeer(uids ...uint32) func(net.Conn) error {
	return func(c net.Conn) error {
		peer, err := localsocket.PeerOf(c)
		if err != nil {
			return fmt.Errorf("cannot determine which user listens there: %w", err)
		}
		switch uid := peer.UID; {
		case uid == localsocket.Unmapped: // never trusted, even if the configuration lists it
			return fmt.Errorf("%w: cannot determine which user listens there, because the proxy's user namespace hides that user (or it is the user nobody). If spdk_tgt runs neither as root nor "+
				"as the proxy's user, run the proxy without a user namespace: PrivateUsers=no in a drop-in for its unit", errUntrustedPeer)
		case slices.Contains(uids, uid):
			return nil
		}
		return fmt.Errorf("%w: %s. If spdk_tgt is supposed to run as that user, add the user to target.peer_users; "+
			"otherwise another process has taken the target's place: find out which, and move the socket to a directory where only spdk_tgt's user may write", errUntrustedPeer, nameOf(peer.UID))
	}
}

var errUntrustedPeer = errors.New("nothing was sent, because an untrusted user listens at the socket")

func nameOf(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := osuser.LookupId(id); err == nil {
		return fmt.Sprintf("user %s (%s)", u.Username, id)
	}
	return "user " + id
}
