package spdktest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// nvmfConfig lists all calls for one subsystem, followed by those for the next one. For releases
// since v26.05, it lists all subsystems first, then all hosts, and so on.
func (e *engine) nvmfConfig() []configPart {
	options := slices.Clone(startup["nvmf"])
	for _, t := range e.nvmf.transports {
		options = append(options, configCall{"nvmf_create_transport", e.transportParams(t)})
	}
	for _, r := range e.nvmf.referrals {
		options = append(options, configCall{"nvmf_discovery_add_referral", spdkrpc.NVMfDiscoveryAddReferralParams{
			Address: listenAddress(r.Address), SecureChannel: new(r.SecureChannel), Subnqn: new(r.Subnqn),
		}})
	}
	parts := []configPart{oneByOne(options...)}
	steps := []func(*subsystem) []configCall{(*subsystem).configSelf, (*subsystem).configHosts, (*subsystem).configNamespaces, (*subsystem).configShown, (*subsystem).configListeners}
	all := e.nvmf.sorted()
	if e.before("v26.05") {
		for _, s := range all {
			for _, step := range steps {
				parts = append(parts, oneByOne(step(s)...))
			}
		}
		return parts
	}
	for _, step := range steps {
		var calls []configCall
		for _, s := range all {
			calls = append(calls, step(s)...)
		}
		parts = append(parts, together(calls...))
	}
	return parts
}

// transportParams returns the transport options that the release reports.
func (e *engine) transportParams(t spdkrpc.NVMfTransport) any {
	text, err := e.target.methods.byName["nvmf_get_transports"].shape([]spdkrpc.NVMfTransport{t})
	var shown []any
	if err == nil {
		err = json.Unmarshal(text, &shown)
	}
	if err != nil {
		panic(err) // cannot happen, because the value comes from the engine itself
	}
	return shown[0]
}

func listenAddress(id spdkrpc.NVMfTransportID) spdkrpc.NVMfListenAddress {
	return spdkrpc.NVMfListenAddress{Trtype: id.Trtype, Adrfam: new(string(id.Adrfam)), Traddr: id.Traddr, Trsvcid: new(id.Trsvcid)}
}

func (s *subsystem) configSelf() []configCall {
	if s.discovery {
		return nil
	}
	return []configCall{{"nvmf_create_subsystem", spdkrpc.NVMfCreateSubsystemParams{
		NQN: s.nqn, AllowAnyHost: new(s.anyHost), SerialNumber: new(s.serial), ModelNumber: new(s.model), MaxNamespaces: new(s.max),
		MinCntlid: new(s.minID), MaxCntlid: new(s.maxID), ANAReporting: new(s.ana), Dmrsl: new(s.dmrsl), Wzsl: new(s.wzsl),
		Passthrough: new(false), EnableNssr: new(false),
	}}}
}

// configHosts writes the names of the keys, not the keys themselves.
func (s *subsystem) configHosts() (calls []configCall) {
	if s.discovery {
		return nil
	}
	for _, h := range s.hosts {
		p := spdkrpc.NVMfSubsystemAddHostParams{NQN: s.nqn, Host: h.nqn}
		if h.key != nil {
			p.DHCHAPKey = new(h.key.name)
		}
		if h.ctrlrKey != nil {
			p.DHCHAPCtrlrKey = new(h.ctrlrKey.name)
		}
		if h.psk != "" {
			p.PSK = new(h.psk)
		}
		calls = append(calls, configCall{"nvmf_subsystem_add_host", p})
	}
	return calls
}

func (s *subsystem) configNamespaces() (calls []configCall) {
	for _, nsid := range slices.Sorted(maps.Keys(s.namespaces)) {
		ns := s.namespaces[nsid]
		p := spdkrpc.NVMfNamespaceParams{NSID: new(nsid), BdevName: ns.bdev.name, UUID: new(ns.uuid), NGUID: new(ns.nguid), NoAutoVisible: new(ns.hidden)}
		if ns.ptplFile != "" {
			p.PtplFile = new(ns.ptplFile)
		}
		if ns.eui64 != "" {
			p.EUI64 = new(ns.eui64)
		}
		if s.ana {
			p.Anagrpid = new(ns.anaGroup)
		}
		calls = append(calls, configCall{"nvmf_subsystem_add_ns", spdkrpc.NVMfSubsystemAddNSParams{NQN: s.nqn, Namespace: p}})
	}
	return calls
}

func (s *subsystem) configShown() (calls []configCall) {
	for _, nsid := range slices.Sorted(maps.Keys(s.namespaces)) {
		for _, host := range slices.Sorted(maps.Keys(s.namespaces[nsid].hosts)) {
			if s.namespaces[nsid].hosts[host] {
				calls = append(calls, configCall{"nvmf_ns_add_host", spdkrpc.NVMfNSAddHostParams{NQN: s.nqn, NSID: nsid, Host: host}})
			}
		}
	}
	return calls
}

func (s *subsystem) configListeners() (calls []configCall) {
	for _, l := range s.listeners {
		calls = append(calls, configCall{"nvmf_subsystem_add_listener", spdkrpc.NVMfSubsystemAddListenerParams{
			NQN: s.nqn, ListenAddress: listenAddress(l.id), SecureChannel: new(l.secure),
		}})
	}
	return calls
}
