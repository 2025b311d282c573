package spdktest

import (
	"encoding/hex"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A namespace is a bdev that a subsystem exports. The namespace claims the bdev, and is removed
// together with it.
type namespace struct {
	nsid, anaGroup     uint32
	bdev               *bdev
	user               *bdevUser
	uuid, nguid, eui64 string // as SPDK reports them
	hidden             bool   // visible only to hosts that have been added to the namespace
	hosts              map[string]bool
	ptplFile           string
}

func init() {
	handle("nvmf_subsystem_add_ns", (*engine).nvmfAddNS)
	confirm("nvmf_subsystem_remove_ns", (*engine).nvmfRemoveNS)
	confirm("nvmf_subsystem_set_ns_ana_group", (*engine).nvmfSetNSANAGroup)
	confirm("nvmf_ns_add_host", func(e *engine, p spdkrpc.NVMfNSAddHostParams) error {
		return e.nvmfShowNS(p.TgtName, p.NQN, p.NSID, p.Host, true)
	})
	confirm("nvmf_ns_remove_host", func(e *engine, p spdkrpc.NVMfNSRemoveHostParams) error {
		return e.nvmfShowNS(p.TgtName, p.NQN, p.NSID, p.Host, false)
	})
}

func (e *engine) nvmfAddNS(p spdkrpc.NVMfSubsystemAddNSParams) (uint32, error) {
	ns := &namespace{
		nsid: value(p.Namespace.NSID), anaGroup: value(p.Namespace.Anagrpid), uuid: normalUUID(p.Namespace.UUID),
		hidden: value(p.Namespace.NoAutoVisible), hosts: map[string]bool{}, ptplFile: value(p.Namespace.PtplFile),
	}
	var ok [2]bool
	ns.nguid, ok[0] = hexText(p.Namespace.NGUID, 16)
	ns.eui64, ok[1] = hexText(p.Namespace.EUI64, 8)
	if !ok[0] || !ok[1] {
		return 0, errInvalidParams
	}
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return 0, err
	}
	for ns.nsid == 0 || p.Namespace.NSID == nil && s.namespaces[ns.nsid] != nil {
		ns.nsid++ // the lowest free NSID
		p.Namespace.NSID = nil
	}
	if ns.anaGroup == 0 {
		ns.anaGroup = ns.nsid
	}
	if ns.nsid > s.max || s.namespaces[ns.nsid] != nil || ns.anaGroup > s.max {
		return 0, errInvalidParams
	}
	b, found := e.bdevs.find(p.Namespace.BdevName)
	if !found {
		return 0, errInvalidParams
	}
	ns.bdev = b
	ns.user, err = b.open(true, func() { e.loseNS(s, ns) })
	if err != nil {
		return 0, errInvalidParams
	}
	b.openChannel(ns.user)
	b.claim = claim{by: "NVMe-oF Target", kind: exclusiveWrite}
	if ns.uuid == "" {
		ns.uuid = b.uuid
	}
	if ns.nguid == "" {
		ns.nguid = strings.ToUpper(strings.ReplaceAll(b.uuid, "-", ""))
	}
	s.namespaces[ns.nsid] = ns
	return ns.nsid, e.export(s)
}

// hexText checks a hexadecimal string of n bytes, and returns it as SPDK reports it.
func hexText(p *string, n int) (string, bool) {
	if p == nil {
		return "", true
	}
	b, err := hex.DecodeString(*p)
	if err != nil || len(b) != n {
		return "", false
	}
	if strings.Trim(*p, "0") == "" {
		return "", true // not set
	}
	return strings.ToUpper(*p), true
}

// release releases a namespace's bdev.
func (ns *namespace) release() {
	ns.bdev.close(ns.user)
	ns.bdev.claim = claim{}
}

// loseNS removes a namespace whose bdev has been removed.
func (e *engine) loseNS(s *subsystem, ns *namespace) {
	delete(s.namespaces, ns.nsid)
	e.exportLater(s)
}

func (e *engine) nvmfRemoveNS(p spdkrpc.NVMfSubsystemRemoveNSParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	ns, ok := s.namespaces[p.NSID]
	if !ok {
		return errInvalidParams
	}
	ns.release()
	delete(s.namespaces, p.NSID)
	return e.export(s)
}

func (e *engine) nvmfSetNSANAGroup(p spdkrpc.NVMfSubsystemSetNSANAGroupParams) error {
	s, err := e.subsystem(p.TgtName, p.NQN)
	if err != nil {
		return err
	}
	ns, ok := s.namespaces[p.NSID]
	if !ok || p.Anagrpid == 0 || p.Anagrpid > s.max {
		return errInvalidParams
	}
	ns.anaGroup = p.Anagrpid
	return nil
}

func (e *engine) nvmfShowNS(tgt *string, nqn string, nsid uint32, host string, show bool) error {
	s, err := e.subsystem(tgt, nqn)
	if err != nil {
		return err
	}
	ns, ok := s.namespaces[nsid]
	if !ok || !ns.hidden || !rpcschema.ValidNQN(host) {
		return errInvalidParams
	}
	ns.hosts[host] = show
	return nil
}

func (ns *namespace) describe(s *subsystem) spdkrpc.NVMfNamespace {
	out := spdkrpc.NVMfNamespace{NSID: int32(ns.nsid), BdevName: ns.bdev.name, Name: ns.bdev.name, NGUID: new(ns.nguid), UUID: new(ns.uuid)}
	if ns.eui64 != "" {
		out.EUI64 = new(ns.eui64)
	}
	if s.ana {
		out.Anagrpid = new(ns.anaGroup)
	}
	return out
}
