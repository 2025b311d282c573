package spdktest

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type subsystem struct {
	nqn           string
	discovery     bool
	serial, model string
	max           uint32 // highest NSID
	ana           bool   // the subsystem reports asymmetric namespace access
	minID, maxID  uint16 // range of controller IDs
	dmrsl         uint32
	wzsl          uint8
	anyHost       bool
	hosts         []*host     // newest first
	listeners     []*listener // newest first
	namespaces    map[uint32]*namespace
	controllers   []spdkrpc.NVMfController // see ConnectHost
}

const (
	defaultMaxNamespaces = 32
	maxMaxNamespaces     = 1 << 24 // more namespaces than SPDK can allocate memory for
	maxCntlid            = 0xffef
)

func init() {
	confirm("nvmf_create_subsystem", (*engine).nvmfCreateSubsystem)
	confirm("nvmf_delete_subsystem", (*engine).nvmfDeleteSubsystem)
	handle("nvmf_get_subsystems", (*engine).nvmfGetSubsystems)
	handle("nvmf_subsystem_get_controllers", func(e *engine, p spdkrpc.NVMfSubsystemGetControllersParams) ([]spdkrpc.NVMfController, error) {
		s, err := e.subsystem(p.TgtName, p.NQN)
		if err != nil {
			return nil, err
		}
		return append([]spdkrpc.NVMfController{}, s.controllers...), nil
	})
	handle("nvmf_subsystem_get_qpairs", func(e *engine, p spdkrpc.NVMfSubsystemGetQpairsParams) ([]spdkrpc.NVMfQpair, error) {
		return []spdkrpc.NVMfQpair{}, e.checkNVMe(p.TgtName, p.NQN)
	})
}

func (e *engine) checkNVMe(tgt *string, nqn string) error {
	_, err := e.subsystem(tgt, nqn)
	return err
}

func (e *engine) nvmfCreateSubsystem(p spdkrpc.NVMfCreateSubsystemParams) error {
	if !printable(value(p.SerialNumber), 20) || !printable(value(p.ModelNumber), 40) {
		return errInvalidParams
	}
	if err := checkTarget(p.TgtName); err != nil {
		return err
	}
	s := &subsystem{
		nqn: p.NQN, serial: or(p.SerialNumber, strings.Repeat("0", 20)), model: or(p.ModelNumber, "SPDK bdev Controller"),
		max: value(p.MaxNamespaces), ana: value(p.ANAReporting), minID: or(p.MinCntlid, 1), maxID: or(p.MaxCntlid, maxCntlid),
		dmrsl: or(p.Dmrsl, 2097152), wzsl: or(p.Wzsl, 12), anyHost: value(p.AllowAnyHost), namespaces: map[uint32]*namespace{},
	}
	if p.MaxDiscardSizeKiB != nil {
		s.dmrsl = uint32(*p.MaxDiscardSizeKiB << 1)
	}
	if p.MaxWriteZeroesSizeKiB != nil {
		size := *p.MaxWriteZeroesSizeKiB
		if size != 0 && (size < 8 || size&(size-1) != 0) {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid max_write_zeroes_size_kib %d", size)
		}
		for s.wzsl = 0; size > 4; size /= 2 {
			s.wzsl++
		}
	}
	if s.max == 0 {
		s.max = defaultMaxNamespaces
	}
	if _, taken := e.nvmf.subsystems[p.NQN]; taken || !rpcschema.ValidNQN(p.NQN) || s.max > maxMaxNamespaces {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Unable to create subsystem %s", p.NQN)
	}
	if s.minID < 1 || s.minID > s.maxID || s.maxID > maxCntlid {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid cntlid range [%d-%d]", s.minID, s.maxID)
	}
	e.nvmf.subsystems[p.NQN] = s
	return nil
}

// printable reports whether a string consists of at most length printable ASCII characters.
func printable(s string, length int) bool {
	return len(s) <= length && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func (e *engine) nvmfDeleteSubsystem(p spdkrpc.NVMfDeleteSubsystemParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	for _, ns := range s.namespaces {
		ns.release()
	}
	for _, h := range s.hosts {
		h.dropKeys()
	}
	delete(e.nvmf.subsystems, p.NQN)
	return e.unexport(s.nqn)
}

func (e *engine) nvmfGetSubsystems(p spdkrpc.NVMfGetSubsystemsParams) ([]spdkrpc.NVMfSubsystem, error) {
	if err := e.checkTargetOf(p.TgtName); err != nil {
		return nil, err
	}
	list := e.nvmf.sorted()
	if p.NQN != nil {
		s, err := e.subsystem(p.TgtName, *p.NQN)
		switch {
		case err != nil && e.before("v26.09"):
			return nil, errno(syscall.ENODEV)
		case err != nil:
			return nil, err
		}
		list = []*subsystem{s}
	}
	out := make([]spdkrpc.NVMfSubsystem, len(list))
	for i, s := range list {
		out[i] = e.describeSubsystem(s)
	}
	return out, nil
}

func (e *engine) describeSubsystem(s *subsystem) spdkrpc.NVMfSubsystem {
	out := spdkrpc.NVMfSubsystem{
		NQN: s.nqn, Subtype: "NVMe", ListenAddresses: []spdkrpc.NVMfTransportID{}, AllowAnyHost: s.anyHost, Hosts: []spdkrpc.NVMfSubsystemHost{},
	}
	for _, l := range s.listeners {
		id := l.id
		id.Transport = new(id.Trtype) // removed later for releases that do not write it
		out.ListenAddresses = append(out.ListenAddresses, id)
	}
	for _, h := range s.hosts {
		out.Hosts = append(out.Hosts, h.describe())
	}
	if s.discovery {
		out.Subtype = "Discovery"
		return out
	}
	out.SerialNumber, out.ModelNumber, out.MaxNamespaces = new(s.serial), new(s.model), new(s.max)
	out.Passthrough, out.MinCntlid, out.MaxCntlid = new(false), new(uint32(s.minID)), new(uint32(s.maxID))
	out.Dmrsl, out.Wzsl = new(s.dmrsl), new(s.wzsl)
	out.Namespaces = []spdkrpc.NVMfNamespace{}
	for _, nsid := range slices.Sorted(maps.Keys(s.namespaces)) {
		out.Namespaces = append(out.Namespaces, s.namespaces[nsid].describe(s))
	}
	return out
}
