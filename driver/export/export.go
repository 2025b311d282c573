package export

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Transport is the protocol that a target uses to export its volumes.
type Transport string

// These are the transports, as SPDK names them.
const (
	TCP   Transport = "TCP"
	RDMA  Transport = "RDMA"
	ISCSI Transport = "iSCSI"
)

// A Host contains the names that targets use to identify a node.
type Host struct {
	NQN string // NVMe host NQN
	// Multipath is a second NQN, which a node with native multipath connects with. Such a node
	// holds back its I/O while a volume is frozen. Multipath is empty for other nodes.
	Multipath string
	IQN       string // iSCSI initiator name
	// Keys contains the secrets that the host must authenticate with; nil if it need not
	// authenticate.
	Keys *hostauth.Keys
}

// is reports whether a name belongs to the host.
func (h Host) is(hostNQN string) bool {
	return hostNQN == h.NQN || hostNQN == h.Multipath && h.Multipath != ""
}

// NQN returns the name of the subsystem that exports a volume. SPDK's spdk-csi uses the same name,
// so its volumes keep working.
func NQN(id string) string { return "nqn.2020-04.io.spdk.csi:uuid:" + id }

// IQN returns the name of the iSCSI target that exports a volume. SPDK's spdk-csi uses the same
// name.
func IQN(id string) string { return "iqn.2016-06.io.spdk:" + id }

// A Portal is an IP address, without brackets, and a port on which a target listens.
type Portal struct{ Addr, Port string }

// String returns the portal as ADDRESS:PORT, with brackets around an IPv6 address.
func (p Portal) String() string { return net.JoinHostPort(p.Addr, p.Port) }

// isIPv6 reports whether the portal's address is an IPv6 address.
func (p Portal) isIPv6() bool {
	ip, err := netip.ParseAddr(p.Addr)
	return err == nil && ip.Is6()
}

// is reports whether addr and port, as SPDK reports them, match the portal. It compares IP
// addresses by value, because an address can be spelled in several ways, and host names as strings.
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
	// Listen contains the portals where the target listens for nodes, with the addresses that the
	// target itself uses. Every export listens on all of these portals.
	Listen []Portal
	// KeyPrefix is the prefix of the names of the driver's keys on the target; empty means
	// DefaultKeyPrefix.
	KeyPrefix string
	// ClaimPatience is how long this controller respects another controller's claim to create the
	// portal group; 0 means DefaultClaimPatience.
	ClaimPatience time.Duration
}

// A Target manages the exports of one SPDK target. All services for a target share one Target, even
// if their credentials differ, because it coordinates the calls that create or remove objects
// shared by exports (portal groups, initiator groups).
type Target struct {
	Config
	groups         *groupUse
	creatingPortal chan struct{} // holds one token while a portal group is being created
	claimSeen      claimSeen     // accessed only by the call that holds the token
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
	refusesUnknown atomic.Bool    // set by missingOrRefused
	marks          coalesce.Group // combines concurrent reads of fence marks
}

// Service returns a service that calls the target through client.
func (t *Target) Service(client *spdkrpc.Client) *Service { return &Service{Target: t, rpc: client} }

// An Admission describes an export that admits a host.
type Admission struct {
	// Multipath reports whether the export also admits the host under the NQN Host.Multipath.
	Multipath bool
	// NotListening is the reason why the target does not listen on some of its portals for this
	// volume, or nil if it listens on all portals.
	NotListening error
}

// Admit makes a volume reachable for one host, at all portals. Admit succeeds if the target listens
// on at least one portal, because the host can then use the volume. Admit fails with [ErrInUse]
// while another host is admitted or connected. Admit also accepts exports that were created by
// SPDK's spdk-csi and admit every host, and restricts them to this host.
//
// If the host has keys, Admit requires it to authenticate with them, and fails with
// [ErrNoAuthentication] if the target does not support authentication. For a host that was admitted
// with other keys, Admit replaces the keys without ending the host's connections.
//
// Admit calls mayExport while it reads the target's state, and changes nothing unless mayExport
// succeeds.
func (s *Service) Admit(ctx context.Context, id string, h Host, mayExport func(context.Context) error) (Admission, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.admit(ctx, id, h, mayExport)
	}
	return nvmf{s}.admit(ctx, id, h, false, mayExport)
}

// Share makes a volume reachable for one more host, in addition to the hosts that already share it.
// It fails with [ErrInUse] while the volume is exported exclusively to another host. Over iSCSI it
// fails with [ErrNotShareable], because SPDK cannot end the sessions of one initiator without
// ending those of other initiators.
func (s *Service) Share(ctx context.Context, id string, h Host, mayExport func(context.Context) error) (Admission, error) {
	if err := s.CheckShareable(); err != nil {
		return Admission{}, err
	}
	return nvmf{s}.admit(ctx, id, h, true, mayExport)
}

// CheckShareable fails with [ErrNotShareable] if the target cannot export volumes to several hosts.
func (c Config) CheckShareable() error {
	if c.Transport == ISCSI {
		return fmt.Errorf("%w: target %s exports over iSCSI, where a volume can be on only one node at a time, because SPDK cannot end the sessions of one node without ending those of others: "+
			"use ReadWriteOnce, or a target of type nvme-tcp or nvme-rdma", ErrNotShareable, c.Name)
	}
	return nil
}

// Withdraw ends the admission of a host, or of all hosts if h is nil, and closes their connections.
// It removes the export when the last host is removed. Withdraw succeeds if the host is not
// admitted.
func (s *Service) Withdraw(ctx context.Context, id string, h *Host) error {
	if s.Transport == ISCSI {
		return iscsi{s}.withdraw(ctx, id, h)
	}
	return nvmf{s}.withdraw(ctx, id, h)
}

// RemoveUnused removes an export that admits no host. It fails with [ErrInUse] if the export admits
// a host, and succeeds if there is no export.
func (s *Service) RemoveUnused(ctx context.Context, id string) error {
	if s.Transport == ISCSI {
		return iscsi{s}.removeUnused(ctx, id)
	}
	return nvmf{s}.removeUnused(ctx, id)
}

// Exists reports whether the volume has an export.
func (s *Service) Exists(ctx context.Context, id string) (bool, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.exists(ctx, id)
	}
	return nvmf{s}.exists(ctx, id)
}

// CheckHoldsIO fails with [ErrInUse] while any connected host would fail its I/O during a freeze
// instead of holding it back. It always succeeds over iSCSI, because the proxy refuses to freeze
// iSCSI volumes.
func (s *Service) CheckHoldsIO(ctx context.Context, id string) error {
	if s.Transport == ISCSI {
		return nil
	}
	return nvmf{s}.checkHoldsIO(ctx, id)
}
