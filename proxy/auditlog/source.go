package auditlog

import (
	"fmt"
	"net/netip"
)

// A Source is where a call comes from: a network address, or a process on this host.
type Source struct {
	Address  netip.AddrPort // if invalid, the source is Process; port 0 means unknown
	Process  Process
	Balancer netip.Addr // the load balancer that forwarded the call; invalid if there is none
}

// A Process is a process on this host that connected to a UNIX socket.
type Process struct {
	PID int32
	UID uint32
}

// String returns the source in the log's format, such as 192.0.2.1:50000 or unix:uid=1000,pid=4711.
func (s Source) String() string {
	switch {
	case s.Address.IsValid() && s.Address.Port() == 0:
		return s.Address.Addr().String()
	case s.Address.IsValid():
		return s.Address.String()
	}
	return fmt.Sprintf("%s,pid=%d", userSource(s.Process.UID), s.Process.PID)
}

// throttled returns the key by which log lines for unauthenticated requests are limited. All
// addresses in an IPv6 /64 share a key, because a single host may use all of them. So do all
// processes of a local user.
func (s Source) throttled() string {
	if !s.Address.IsValid() {
		return userSource(s.Process.UID)
	}
	address := s.Address.Addr().Unmap().WithZone("")
	prefix, _ := address.Prefix(min(address.BitLen(), 64)) // cannot fail: the address has at least that many bits
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.String()
}

func userSource(uid uint32) string { return fmt.Sprintf("unix:uid=%d", uid) }
