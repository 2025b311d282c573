package authn

import (
	"errors"
	"fmt"
	"slices"
)

// A Peer is a process on this host that sent a request over a UNIX socket, as identified by the
// kernel.
type Peer struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary groups
}

// unmapped is the uid or gid that the kernel reports for users and groups outside this process's
// user namespace. It does not identify a user, so it never authenticates a request.
const unmapped = 65534

// locals maps processes on this host to users.
type locals struct {
	byUID map[uint32]string
	byGID []groupRule // in the order of the users in the configuration
}

type groupRule struct {
	gid  uint32
	user string
}

func newLocals(users []User) (*locals, error) {
	l := &locals{byUID: map[uint32]string{}}
	var wrong []error
	for _, u := range users {
		for _, uid := range u.UIDs {
			other, taken := l.byUID[uid]
			switch {
			case uid == unmapped:
				wrong = append(wrong, fmt.Errorf("user %s: local.users contains %d, which the kernel also reports for users of other namespaces: use a dedicated user", u.Name, uid))
			case taken && other != u.Name:
				wrong = append(wrong, fmt.Errorf("users %s and %s both list user %d of this host in local.users", other, u.Name, uid))
			}
			l.byUID[uid] = u.Name
		}
		for _, gid := range u.GIDs {
			i := slices.IndexFunc(l.byGID, func(r groupRule) bool { return r.gid == gid })
			switch {
			case gid == unmapped:
				wrong = append(wrong, fmt.Errorf("user %s: local.groups contains %d, which the kernel also reports for groups of other namespaces: use a dedicated group", u.Name, gid))
			case i >= 0 && l.byGID[i].user != u.Name:
				wrong = append(wrong, fmt.Errorf("users %s and %s both list group %d of this host in local.groups", l.byGID[i].user, u.Name, gid))
			}
			l.byGID = append(l.byGID, groupRule{gid, u.Name})
		}
	}
	return l, errors.Join(wrong...)
}

// identify returns the user configured for the process's uid or, if there is none, the first user
// in the configuration with one of the process's groups.
func (l *locals) identify(p Peer) (Identity, error) {
	who := Identity{Method: ByPeer, Credential: fmt.Sprintf("uid %d", p.UID)}
	if p.UID == unmapped {
		return who, rejected("the proxy cannot determine which user of this host you are, because its user namespace hides that user: ask the administrator of this proxy to run it without one (PrivateUsers=no)")
	}
	if user, ok := l.byUID[p.UID]; ok {
		who.User = user
		return who, nil
	}
	for _, r := range l.byGID {
		if p.GID == r.gid || slices.Contains(p.Groups, r.gid) {
			who.User, who.Credential = r.user, fmt.Sprintf("uid %d, gid %d", p.UID, r.gid)
			return who, nil
		}
	}
	return who, rejected("no user of this proxy has your uid (%d) or one of your groups: ask the administrator of this proxy to add it to local in the configuration", p.UID)
}
