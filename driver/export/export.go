package export

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Transport is how a target exports its volumes.
type Transport string

// The transports, as SPDK calls them.
const (
	TCP   Transport = "TCP"
	RDMA  Transport = "RDMA"
	ISCSI Transport = "iSCSI"
)

// A Host is a node as targets know it.
type Host struct {
	NQN string // NVMe host NQN
	// Multipath is the NQN as which the node connects where it can be made to hold I/O back; empty: none.
	Multipath string
	IQN       string // iSCSI initiator name
}

// is tells whether a name is one of the host's.
func (h Host) is(hostNQN string) bool {
	return hostNQN == h.NQN || hostNQN == h.Multipath && h.Multipath != ""
}

// isMultipath recognises a host that connected as Host.Multipath, which no others do: its UUID is of version 8.
func isMultipath(hostNQN string) bool {
	text, ok := strings.CutPrefix(hostNQN, "nqn.2014-08.org.nvmexpress:uuid:")
	id, err := uuid.Parse(text)
	return ok && err == nil && id.Version() == 8
}

// NQN is the name of the subsystem that exports a volume. It is spdk-csi's, so that its volumes go on working.
func NQN(id string) string { return "nqn.2020-04.io.spdk.csi:uuid:" + id }

// IQN is the name of the iSCSI target that exports a volume, as in spdk-csi.
func IQN(id string) string { return "iqn.2016-06.io.spdk:" + id }

// Config says how a target exports.
type Config struct {
	Name      string // of the target, for messages
	Transport Transport
	// ListenAddr and ListenPort are where the target listens for nodes, as the target sees it.
	ListenAddr, ListenPort string
}

// A Target is the exports of one SPDK target. It is made once, for all credentials: through it calls learn of each other
// where they make or remove what exports share (portal groups, initiator groups).
type Target struct {
	Config
	groups         *groupUse
	creatingPortal chan struct{} // holds one token while a portal group is created
}

// NewTarget returns the exports of a target.
func NewTarget(c Config) *Target {
	return &Target{Config: c, groups: newGroupUse(), creatingPortal: make(chan struct{}, 1)}
}

// A Service exports volumes with the credentials of its client. Safe for concurrent use.
type Service struct {
	*Target
	rpc            *spdkrpc.Client
	refusesUnknown atomic.Bool // see missingOrRefused
}

// Service returns a service that works through client.
func (t *Target) Service(client *spdkrpc.Client) *Service { return &Service{Target: t, rpc: client} }

// Admit makes a volume reachable for one host, which it tells whether it may connect as Host.Multipath. It refuses with
// [ErrInUse] while another host is admitted or connected. An export that spdk-csi made, open to every host, is taken over.
func (s *Service) Admit(ctx context.Context, id string, h Host) (multipath bool, err error) {
	if s.Transport == ISCSI {
		return false, iscsi{s}.admit(ctx, id, h)
	}
	return nvmf{s}.admit(ctx, id, h)
}

// Withdraw takes the admission of a host back, of all hosts if h is nil, and removes the export if no host is left. The
// connections of the host are cut. It succeeds when there is nothing to withdraw.
func (s *Service) Withdraw(ctx context.Context, id string, h *Host) error {
	if s.Transport == ISCSI {
		return iscsi{s}.withdraw(ctx, id, h)
	}
	return nvmf{s}.withdraw(ctx, id, h)
}

// RemoveUnused removes an export that no host is admitted to; [ErrInUse] if one is. It succeeds when there is none.
func (s *Service) RemoveUnused(ctx context.Context, id string) error {
	if s.Transport == ISCSI {
		return iscsi{s}.removeUnused(ctx, id)
	}
	return nvmf{s}.removeUnused(ctx, id)
}

// Exists tells whether there is an export of the volume.
func (s *Service) Exists(ctx context.Context, id string) (bool, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.exists(ctx, id)
	}
	return nvmf{s}.exists(ctx, id)
}

// CheckHoldsIO refuses with [ErrInUse] while a host is connected that would not hold its I/O back while the volume is
// frozen, but fail it. iSCSI cannot be frozen at all: that, the proxy refuses.
func (s *Service) CheckHoldsIO(ctx context.Context, id string) error {
	if s.Transport == ISCSI {
		return nil
	}
	return nvmf{s}.checkHoldsIO(ctx, id)
}
