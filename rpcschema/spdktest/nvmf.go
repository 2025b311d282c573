package spdktest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// nvmfName is the name of the process's only NVMe-oF target.
const nvmfName = "nvmf_tgt"

// An nvmfTarget holds the state of the NVMe-oF target, which is lost when the process ends. Hosts
// cannot connect to the simulation; ConnectHost only makes a subsystem report a host.
type nvmfTarget struct {
	transports []spdkrpc.NVMfTransport
	subsystems map[string]*subsystem
	referrals  []spdkrpc.NVMfReferral
}

func (t *nvmfTarget) init() {
	t.subsystems = map[string]*subsystem{
		rpcschema.DiscoveryNQN: {nqn: rpcschema.DiscoveryNQN, discovery: true, anyHost: true},
	}
}

func init() {
	confirm("nvmf_create_transport", (*engine).nvmfCreateTransport)
	handle("nvmf_get_transports", (*engine).nvmfGetTransports)
	query("nvmf_get_targets", func(*engine) ([]string, error) { return []string{nvmfName}, nil })
	handle("nvmf_get_stats", (*engine).nvmfGetStats)
	confirm("nvmf_discovery_add_referral", (*engine).nvmfAddReferral)
	confirm("nvmf_discovery_remove_referral", (*engine).nvmfRemoveReferral)
	handle("nvmf_discovery_get_referrals", (*engine).nvmfGetReferrals)
}

// checkTarget returns an error if no target has the given name.
func checkTarget(name *string) error {
	if name != nil && *name != nvmfName {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Unable to find a target.")
	}
	return nil
}

// subsystem returns the subsystem with the given NQN. If no such subsystem exists, the error is the
// one that most methods return.
func (e *engine) subsystem(tgt *string, nqn string) (*subsystem, error) {
	if err := e.checkTargetOf(tgt); err != nil {
		return nil, err
	}
	s, ok := e.nvmf.subsystems[nqn]
	switch {
	case ok:
		return s, nil
	case e.before("v26.09"):
		return nil, errInvalidParams
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Subsystem with NQN '%s' not found", nqn)
}

// checkTargetOf is like checkTarget, but returns the error of methods that look up a subsystem.
func (e *engine) checkTargetOf(name *string) error {
	err := checkTarget(name)
	if err == nil || e.before("v26.09") {
		return err
	}
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "NVMf target '%s' not found", *name)
}

// sorted returns the subsystems sorted by NQN.
func (t *nvmfTarget) sorted() []*subsystem {
	return slices.SortedFunc(maps.Values(t.subsystems), func(a, b *subsystem) int { return cmp.Compare(a.nqn, b.nqn) })
}

func (t *nvmfTarget) transport(trtype string) (*spdkrpc.NVMfTransport, bool) {
	i := slices.IndexFunc(t.transports, func(t spdkrpc.NVMfTransport) bool { return strings.EqualFold(t.Trtype, trtype) })
	if i < 0 {
		return nil, false
	}
	return &t.transports[i], true
}

const letSPDKChoose = 1<<32 - 1

// nvmfCreateTransport supports only TCP, like an SPDK that was built without RDMA.
func (e *engine) nvmfCreateTransport(p spdkrpc.NVMfCreateTransportParams) error {
	if err := checkTarget(p.TgtName); err != nil {
		return err
	}
	if !strings.EqualFold(p.Trtype, "TCP") {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid transport type '%s'", p.Trtype)
	}
	if _, there := e.nvmf.transport(p.Trtype); there {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Transport type '%s' already exists", p.Trtype)
	}
	size := or(p.MaxIOSize, 131072)
	if size&(size-1) != 0 || size != 0 && size < 8192 {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Transport type '%s' create failed", p.Trtype)
	}
	cache := or(p.IobufSmallCacheSize, or(p.BufCacheSize, letSPDKChoose))
	e.nvmf.transports = append(e.nvmf.transports, spdkrpc.NVMfTransport{
		Trtype: "TCP", MaxQueueDepth: uint32(or(p.MaxQueueDepth, 128)), MaxIOQpairsPerCtrlr: uint32(or(p.MaxIOQpairsPerCtrlr, 127)),
		InCapsuleDataSize: or(p.InCapsuleDataSize, 4096), MaxIOSize: size, IOUnitSize: new(or(p.IOUnitSize, 131072)), MaxAqDepth: max(or(p.MaxAqDepth, 128), 32),
		NumSharedBuffers: new(or(p.NumSharedBuffers, 511)), BufCacheSize: &cache, IobufSmallCacheSize: &cache,
		IobufLargeCacheSize: new(or(p.IobufLargeCacheSize, letSPDKChoose)), DIFInsertOrStrip: value(p.DIFInsertOrStrip), Zcopy: value(p.Zcopy),
		C2hSuccess: new(or(p.C2hSuccess, true)), SockPriority: new(value(p.SockPriority)), AbortTimeoutSec: or(p.AbortTimeoutSec, 1),
		ACKTimeout: new(value(p.ACKTimeout)), DataWrPoolSize: new(value(p.DataWrPoolSize)), Kas: new(or(p.Kas, 100)), MinKato: new(or(p.MinKato, 10000)),
		DisableCommandPassthru: new(value(p.DisableCommandPassthru)),
	})
	return nil
}

// or returns *p, or the default if p is nil.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func (e *engine) nvmfGetTransports(p spdkrpc.NVMfGetTransportsParams) ([]spdkrpc.NVMfTransport, error) {
	if err := checkTarget(p.TgtName); err != nil {
		return nil, err
	}
	if p.Trtype == nil {
		return append([]spdkrpc.NVMfTransport{}, e.nvmf.transports...), nil
	}
	t, ok := e.nvmf.transport(*p.Trtype)
	if !ok {
		return nil, errno(syscall.ENODEV)
	}
	return []spdkrpc.NVMfTransport{*t}, nil
}

func (e *engine) nvmfGetStats(p spdkrpc.NVMfGetStatsParams) (spdkrpc.NVMfStats, error) {
	if err := checkTarget(p.TgtName); err != nil {
		return spdkrpc.NVMfStats{}, err
	}
	group := spdkrpc.NVMfPollGroupStats{CurrentUnassociatedQpairs: new(uint32), Name: e.pollGroup(), Transports: []spdkrpc.NVMfTransportStats{}}
	for _, t := range e.nvmf.transports {
		group.Transports = append(group.Transports, spdkrpc.NVMfTransportStats{Trtype: t.Trtype})
	}
	return spdkrpc.NVMfStats{TickRate: tickRate, PollGroups: []spdkrpc.NVMfPollGroupStats{group}}, nil
}

// pollGroup is the name of the only poll group.
func (e *engine) pollGroup() string {
	if e.before("v24.05") {
		return "nvmf_tgt_poll_group_0"
	}
	return "nvmf_tgt_poll_group_000"
}

// tickRate is the number of ticks per second of the simulation's clock.
const tickRate = uint64(time.Second)

var clockStart = time.Now()

// ticks returns the time on the simulation's clock.
func ticks() uint64 { return uint64(time.Since(clockStart)) }

func (e *engine) nvmfAddReferral(p spdkrpc.NVMfDiscoveryAddReferralParams) error {
	if err := checkTarget(p.TgtName); err != nil {
		return err
	}
	r, err := e.referral(p.Address, p.Subnqn)
	if err != nil {
		return err
	}
	if r.Address.Trsvcid == "" || !rpcschema.ValidNQN(r.Subnqn) {
		return errInternal
	}
	r.SecureChannel = value(p.SecureChannel)
	if !slices.ContainsFunc(e.nvmf.referrals, r.same) {
		e.nvmf.referrals = append(e.nvmf.referrals, r.NVMfReferral)
	}
	return nil
}

type referral struct{ spdkrpc.NVMfReferral }

func (r referral) same(o spdkrpc.NVMfReferral) bool {
	return o.Address == r.Address && o.Subnqn == r.Subnqn
}

func (e *engine) referral(a spdkrpc.NVMfListenAddress, nqn *string) (referral, error) {
	id, err := e.transportID(a)
	if err != nil {
		return referral{}, err
	}
	return referral{spdkrpc.NVMfReferral{Address: id, Subnqn: or(nqn, rpcschema.DiscoveryNQN)}}, nil
}

func (e *engine) nvmfRemoveReferral(p spdkrpc.NVMfDiscoveryRemoveReferralParams) error {
	if err := checkTarget(p.TgtName); err != nil {
		return err
	}
	r, err := e.referral(p.Address, p.Subnqn)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(e.nvmf.referrals, r.same)
	if i < 0 {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Unable to remove a referral.")
	}
	e.nvmf.referrals = slices.Delete(e.nvmf.referrals, i, i+1)
	return nil
}

func (e *engine) nvmfGetReferrals(p spdkrpc.NVMfDiscoveryGetReferralsParams) ([]spdkrpc.NVMfReferral, error) {
	if err := checkTarget(p.TgtName); err != nil {
		return nil, err
	}
	return append([]spdkrpc.NVMfReferral{}, e.nvmf.referrals...), nil
}
