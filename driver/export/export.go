package export

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Transport is the protocol over which a target exports its volumes.
type Transport string

// The transports, as SPDK calls them.
const (
	TCP   Transport = "TCP"
	RDMA  Transport = "RDMA"
	ISCSI Transport = "iSCSI"
)

// A Host holds the names under which targets know a node.
type Host struct {
	NQN string // NVMe host NQN
	// Multipath is a second NQN, under which the node connects if it has native multipath: such a
	// node holds back its I/O while a volume is frozen. It is empty if the node has none.
	Multipath string
	IQN       string // iSCSI initiator name
	// Keys holds the secrets that the host must authenticate with, or nil if it need not.
	Keys *hostauth.Keys
}

// is reports whether a name is one of the host's.
func (h Host) is(hostNQN string) bool {
	return hostNQN == h.NQN || hostNQN == h.Multipath && h.Multipath != ""
}

// isMultipath reports whether a host NQN is one of Host.Multipath: only these have a UUID of
// version 8.
func isMultipath(hostNQN string) bool {
	text, ok := strings.CutPrefix(hostNQN, "nqn.2014-08.org.nvmexpress:uuid:")
	id, err := uuid.Parse(text)
	return ok && err == nil && id.Version() == 8
}

// NQN returns the name of the subsystem that exports a volume. spdk-csi uses the same name, so its
// volumes keep working.
func NQN(id string) string { return "nqn.2020-04.io.spdk.csi:uuid:" + id }

// IQN returns the name of the iSCSI target that exports a volume. It is the same as in spdk-csi.
func IQN(id string) string { return "iqn.2016-06.io.spdk:" + id }

// A Portal is an IP address, without brackets, and a port where a target listens.
type Portal struct{ Addr, Port string }

// String returns the portal as ADDRESS:PORT, with brackets around an IPv6 address.
func (p Portal) String() string { return net.JoinHostPort(p.Addr, p.Port) }

// isIPv6 reports whether the portal's address is an IPv6 address.
func (p Portal) isIPv6() bool {
	ip, err := netip.ParseAddr(p.Addr)
	return err == nil && ip.Is6()
}

// is reports whether addr and port, as SPDK reports them, are the portal's. IP addresses are
// compared by value, because one address has several spellings; host names, as text.
func (p Portal) is(addr, port string) bool { return p.Port == port && sameAddr(p.Addr, addr) }

func sameAddr(a, b string) bool {
	x, errX := netip.ParseAddr(strings.Trim(a, "[]"))
	y, errY := netip.ParseAddr(strings.Trim(b, "[]"))
	return a == b || errX == nil && errY == nil && x == y
}

// Config sets how a target exports volumes.
type Config struct {
	Name      string // the target's name, for messages
	Transport Transport
	// Listen holds the portals where the target listens for nodes, as the target sees them. Every
	// export gets all of them.
	Listen []Portal
	// KeyPrefix begins the names of the driver's keys on the target; empty means DefaultKeyPrefix.
	KeyPrefix string
	// ClaimPatience is how long another controller's claim to create the portal group is respected;
	// 0 means DefaultClaimPatience.
	ClaimPatience time.Duration
}

// A Target manages the exports of one SPDK target. All services for a target, whatever their
// credentials, share one Target: it coordinates calls that create or remove what exports share
// (portal groups, initiator groups).
type Target struct {
	Config
	groups         *groupUse
	creatingPortal chan struct{} // holds one token while a portal group is created
	claimSeen      claimSeen     // read and written by the call that holds the token
}

// NewTarget returns a Target for one SPDK target.
func NewTarget(c Config) *Target {
	if c.ClaimPatience == 0 {
		c.ClaimPatience = DefaultClaimPatience
	}
	if c.KeyPrefix == "" {
		c.KeyPrefix = DefaultKeyPrefix
	}
	return &Target{Config: c, groups: newGroupUse(), creatingPortal: make(chan struct{}, 1)}
}

// A Service exports volumes with its client's credentials. It is safe for concurrent use.
type Service struct {
	*Target
	rpc            *spdkrpc.Client
	refusesUnknown atomic.Bool    // see missingOrRefused
	marks          coalesce.Group // reads of the marks of fenced hosts
}

// Service returns a service that calls the target through client.
func (t *Target) Service(client *spdkrpc.Client) *Service { return &Service{Target: t, rpc: client} }

// An Admission is what Admit learned about an export.
type Admission struct {
	// Multipath reports whether the host may connect as Host.Multipath.
	Multipath bool
	// NotListening is why the target does not listen on some of its portals for this volume; nil if
	// it listens on all.
	NotListening error
}

// Admit makes a volume reachable for one host, at all portals. It succeeds if the target listens on
// at least one of them, because the host can then use the volume. Admit fails with [ErrInUse] while
// another host is admitted or connected. It takes over an export of spdk-csi, which is open to
// every host.
//
// If the host has keys, Admit requires it to authenticate with them, and fails with
// [ErrNoAuthentication] if the target cannot. A host admitted with other keys gets the new ones;
// its connections stay.
//
// Admit changes nothing before mayExport has succeeded, and calls it while it reads.
func (s *Service) Admit(ctx context.Context, id string, h Host, mayExport func(context.Context) error) (Admission, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.admit(ctx, id, h, mayExport)
	}
	return nvmf{s}.admit(ctx, id, h, false, mayExport)
}

// Share makes a volume reachable for one more host, along with others that share it. It fails with
// [ErrInUse] while the volume is exported to another host alone. Over iSCSI it fails with
// [ErrNotShareable], because SPDK cannot end the sessions of one initiator and keep those of
// others.
func (s *Service) Share(ctx context.Context, id string, h Host, mayExport func(context.Context) error) (Admission, error) {
	if err := s.CheckShareable(); err != nil {
		return Admission{}, err
	}
	return nvmf{s}.admit(ctx, id, h, true, mayExport)
}

// CheckShareable fails with [ErrNotShareable] if the target cannot export volumes to several hosts.
func (c Config) CheckShareable() error {
	if c.Transport == ISCSI {
		return fmt.Errorf("%w: target %s exports over iSCSI, where a volume is on one node at a time, because SPDK cannot end the sessions of one node and keep those of others: "+
			"use ReadWriteOnce, or a target of type nvme-tcp or nvme-rdma", ErrNotShareable, c.Name)
	}
	return nil
}

// Withdraw ends a host's admission, or all hosts' if h is nil, and removes the export if no host is
// left. The target closes the host's connections. Withdraw succeeds if the host is not admitted.
func (s *Service) Withdraw(ctx context.Context, id string, h *Host) error {
	if s.Transport == ISCSI {
		return iscsi{s}.withdraw(ctx, id, h)
	}
	return nvmf{s}.withdraw(ctx, id, h)
}

// RemoveUnused removes an export to which no host is admitted. It fails with [ErrInUse] if one is,
// and succeeds if there is no export.
func (s *Service) RemoveUnused(ctx context.Context, id string) error {
	if s.Transport == ISCSI {
		return iscsi{s}.removeUnused(ctx, id)
	}
	return nvmf{s}.removeUnused(ctx, id)
}

// Exists reports whether there is an export of the volume.
func (s *Service) Exists(ctx context.Context, id string) (bool, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.exists(ctx, id)
	}
	return nvmf{s}.exists(ctx, id)
}

// CheckHoldsIO fails with [ErrInUse] while a connected host would fail its I/O, instead of holding
// it back, during a freeze. It checks nothing over iSCSI, because the proxy refuses to freeze iSCSI
// volumes.
func (s *Service) CheckHoldsIO(ctx context.Context, id string) error {
	if s.Transport == ISCSI {
		return nil
	}
	return nvmf{s}.checkHoldsIO(ctx, id)
}
