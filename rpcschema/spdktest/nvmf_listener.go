package spdktest

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A listener is an address of a subsystem. The simulation does not listen on the address, but the
// address must be available on this host.
type listener struct {
	id     spdkrpc.NVMfTransportID
	secure bool
	ana    []string // state of each ANA group
}

const (
	maxListeners = 16
	optimized    = "optimized"
)

var anaStates = sync.OnceValue(func() []string { return valuesOf("nvmf_subsystem_add_listener", "ana_state") })

func init() {
	confirm("nvmf_subsystem_add_listener", (*engine).nvmfAddListener)
	confirm("nvmf_subsystem_remove_listener", (*engine).nvmfRemoveListener)
	confirm("nvmf_subsystem_listener_set_ana_state", (*engine).nvmfSetANAState)
	handle("nvmf_subsystem_get_listeners", (*engine).nvmfGetListeners)
}

// addressFamilies lists the address families that SPDK accepts, in its spelling.
var addressFamilies = []spdkrpc.NVMfTransportIDAdrfam{
	spdkrpc.NVMfTransportIDAdrfamIpv4, spdkrpc.NVMfTransportIDAdrfamIpv6, spdkrpc.NVMfTransportIDAdrfamIb, spdkrpc.NVMfTransportIDAdrfamFc,
}

// transportID converts an address to the form that SPDK reports.
func (e *engine) transportID(a spdkrpc.NVMfListenAddress) (spdkrpc.NVMfTransportID, error) {
	if a.Trtype == "" {
		if a.Trtype = value(a.Transport); a.Trtype == "" {
			return spdkrpc.NVMfTransportID{}, e.withoutTrtype()
		}
	}
	id := spdkrpc.NVMfTransportID{Trtype: strings.ToUpper(a.Trtype), Adrfam: "IPv4", Traddr: a.Traddr, Trsvcid: value(a.Trsvcid)}
	if a.Adrfam != nil {
		i := slices.IndexFunc(addressFamilies, func(f spdkrpc.NVMfTransportIDAdrfam) bool { return strings.EqualFold(string(f), *a.Adrfam) })
		if i < 0 {
			return id, errInvalidParams
		}
		id.Adrfam = addressFamilies[i]
	}
	if len(id.Trtype) > 32 || len(id.Traddr) > 256 || len(id.Trsvcid) > 32 {
		return id, errInvalidParams
	}
	return id, nil
}

// withoutTrtype returns the error for an address that was decoded without a transport.
func (e *engine) withoutTrtype() error {
	if e.before("v24.05") {
		return errCrash
	}
	return errInvalidParams
}

// canListen reports whether the address consists of an IP address of this host and a port.
func canListen(id spdkrpc.NVMfTransportID) bool {
	if !isAddress(id) {
		return false
	}
	addr := netip.MustParseAddr(id.Traddr)
	if addr.IsUnspecified() || addr.IsLoopback() {
		return true
	}
	local, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(local, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(addr.AsSlice())
	})
}

// isAddress reports whether the address consists of an IP address of its address family and a port.
func isAddress(id spdkrpc.NVMfTransportID) bool {
	port, err := strconv.ParseUint(id.Trsvcid, 10, 16)
	addr, addrErr := netip.ParseAddr(id.Traddr)
	return err == nil && port != 0 && addrErr == nil && addr.Is4() == (id.Adrfam == "IPv4")
}

func (s *subsystem) listener(id spdkrpc.NVMfTransportID) int {
	return slices.IndexFunc(s.listeners, func(l *listener) bool { return l.id == id })
}

func (e *engine) nvmfAddListener(p spdkrpc.NVMfSubsystemAddListenerParams) error {
	state := string(or(p.ANAState, spdkrpc.NVMfSubsystemAddListenerANAStateOptimized))
	if !slices.Contains(anaStates(), state) {
		return errInvalidParams
	}
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	id, err := e.transportID(p.ListenAddress)
	if err != nil {
		return err
	}
	if s.anyHost && value(p.SecureChannel) {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Cannot establish secure channel, when 'allow_any_host' is set")
	}
	if s.listener(id) >= 0 && e.before("v24.05") {
		return nil // already listening: the call succeeds
	}
	if _, there := e.nvmf.transport(id.Trtype); !there || s.listener(id) >= 0 || !canListen(id) || len(s.listeners) == maxListeners {
		return errInvalidParams
	}
	l := &listener{id: id, secure: value(p.SecureChannel), ana: slices.Repeat([]string{state}, int(s.max))}
	s.listeners = slices.Insert(s.listeners, 0, l)
	return e.export(s)
}

func (e *engine) nvmfRemoveListener(p spdkrpc.NVMfSubsystemRemoveListenerParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	id, err := e.transportID(p.ListenAddress)
	if err != nil {
		return err
	}
	i := s.listener(id)
	if i < 0 {
		return errInvalidParams
	}
	s.listeners = slices.Delete(s.listeners, i, i+1)
	return e.export(s)
}

func (e *engine) nvmfSetANAState(p spdkrpc.NVMfSubsystemListenerSetANAStateParams) error {
	if !slices.Contains(anaStates(), string(p.ANAState)) {
		return errInvalidParams
	}
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	id, err := e.transportID(p.ListenAddress)
	if err != nil {
		return err
	}
	i, group := s.listener(id), value(p.Anagrpid)
	if !s.ana || i < 0 || group > s.max {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "error setting ANA state: -22")
	}
	states := s.listeners[i].ana
	for g := range states {
		if group == 0 || g == int(group)-1 {
			states[g] = string(p.ANAState)
		}
	}
	return nil
}

func (e *engine) nvmfGetListeners(p spdkrpc.NVMfSubsystemGetListenersParams) ([]spdkrpc.NVMfListener, error) {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return nil, err
	}
	list := []spdkrpc.NVMfListener{}
	for _, l := range s.listeners {
		out := spdkrpc.NVMfListener{Address: l.id}
		for g, state := range l.ana {
			if s.ana {
				out.ANAStates = append(out.ANAStates, spdkrpc.NVMfListenerANAState{ANAGroup: uint32(g + 1), ANAState: spdkrpc.NVMfListenerANAStateANAState(state)})
			}
		}
		list = append(list, out)
	}
	return list, nil
}
