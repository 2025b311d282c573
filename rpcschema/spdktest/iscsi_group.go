package spdktest

import (
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A portalGroup is a set of addresses where initiators can log in.
type portalGroup struct {
	spdkrpc.ISCSIPortalGroup
	chap chap
}

const (
	maxInitiatorName = 223
	maxNetmask       = 64
)

func init() {
	confirm("iscsi_create_portal_group", (*engine).iscsiCreatePortalGroup)
	confirm("iscsi_delete_portal_group", (*engine).iscsiDeletePortalGroup)
	confirm("iscsi_start_portal_group", func(e *engine, p spdkrpc.ISCSIStartPortalGroupParams) error {
		_, err := e.portalGroup(p.Tag)
		return err
	})
	confirm("iscsi_portal_group_set_auth", (*engine).iscsiPortalGroupSetAuth)
	query("iscsi_get_portal_groups", func(e *engine) ([]spdkrpc.ISCSIPortalGroup, error) {
		list := []spdkrpc.ISCSIPortalGroup{}
		for _, g := range e.iscsi.portals {
			list = append(list, g.ISCSIPortalGroup)
		}
		return list, nil
	})
	confirm("iscsi_create_initiator_group", (*engine).iscsiCreateInitiatorGroup)
	confirm("iscsi_delete_initiator_group", (*engine).iscsiDeleteInitiatorGroup)
	confirm("iscsi_initiator_group_add_initiators", (*engine).iscsiAddInitiators)
	confirm("iscsi_initiator_group_remove_initiators", (*engine).iscsiRemoveInitiators)
	query("iscsi_get_initiator_groups", func(e *engine) ([]spdkrpc.ISCSIInitiatorGroup, error) {
		list := []spdkrpc.ISCSIInitiatorGroup{}
		for _, g := range e.iscsi.initiators {
			list = append(list, spdkrpc.ISCSIInitiatorGroup{Tag: g.Tag, Initiators: slices.Clone(g.Initiators), Netmasks: slices.Clone(g.Netmasks)})
		}
		return list, nil
	})
}

func (e *engine) portalGroup(tag int32) (*portalGroup, error) {
	i := slices.IndexFunc(e.iscsi.portals, func(g *portalGroup) bool { return g.Tag == tag })
	if i < 0 {
		return nil, errInvalidParams
	}
	return e.iscsi.portals[i], nil
}

// iscsiCreatePortalGroup crashes the target if another group already contains the portal, as SPDK
// v26.05 does. v24.01 refuses the call.
func (e *engine) iscsiCreatePortalGroup(p spdkrpc.ISCSICreatePortalGroupParams) error {
	g := &portalGroup{ISCSIPortalGroup: spdkrpc.ISCSIPortalGroup{Tag: p.Tag, Portals: []spdkrpc.ISCSIPortal{}, Private: value(p.Private)}}
	for _, portal := range p.Portals {
		switch portal.Host {
		case "*":
			portal.Host = "0.0.0.0"
		case "[*]":
			portal.Host = "[::]"
		}
		taken := e.portalTaken(portal)
		if taken && !e.before("v26.05") {
			return errCrash
		}
		if taken || slices.Contains(g.Portals, portal) || !canListen(portalAddress(portal)) {
			return errInvalidParams
		}
		g.Portals = append(g.Portals, portal)
	}
	if _, err := e.portalGroup(p.Tag); err == nil {
		return errInvalidParams
	}
	e.iscsi.portals = append(e.iscsi.portals, g)
	return nil
}

func (e *engine) portalTaken(portal spdkrpc.ISCSIPortal) bool {
	return slices.ContainsFunc(e.iscsi.portals, func(g *portalGroup) bool { return slices.Contains(g.Portals, portal) })
}

func portalAddress(p spdkrpc.ISCSIPortal) spdkrpc.NVMfTransportID {
	host, six := strings.CutPrefix(p.Host, "[")
	if six {
		return spdkrpc.NVMfTransportID{Adrfam: "IPv6", Traddr: strings.TrimSuffix(host, "]"), Trsvcid: p.Port}
	}
	return spdkrpc.NVMfTransportID{Adrfam: "IPv4", Traddr: p.Host, Trsvcid: p.Port}
}

func (e *engine) iscsiDeletePortalGroup(p spdkrpc.ISCSIDeletePortalGroupParams) error {
	g, err := e.portalGroup(p.Tag)
	if err != nil {
		return err
	}
	e.iscsi.portals = slices.DeleteFunc(e.iscsi.portals, func(o *portalGroup) bool { return o == g })
	return e.dropMaps(func(m spdkrpc.ISCSIPGIGMap) bool { return m.PGTag == p.Tag })
}

func (e *engine) iscsiPortalGroupSetAuth(p spdkrpc.ISCSIPortalGroupSetAuthParams) error {
	g, err := e.portalGroup(p.Tag)
	if err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Could not find portal group %d", p.Tag)
	}
	c := newChap(p.DisableCHAP, p.RequireCHAP, p.MutualCHAP, p.CHAPGroup)
	if !c.consistent() {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid combination of auth params")
	}
	g.chap = c
	return nil
}

func (e *engine) initiatorGroup(tag int32) (*spdkrpc.ISCSIInitiatorGroup, error) {
	i := slices.IndexFunc(e.iscsi.initiators, func(g *spdkrpc.ISCSIInitiatorGroup) bool { return g.Tag == tag })
	if i < 0 {
		return nil, errInvalidParams
	}
	return e.iscsi.initiators[i], nil
}

func (e *engine) iscsiCreateInitiatorGroup(p spdkrpc.ISCSICreateInitiatorGroupParams) error {
	if _, err := e.initiatorGroup(p.Tag); err == nil || len(p.Initiators) == 0 || len(p.Netmasks) == 0 {
		return errInvalidParams
	}
	g := &spdkrpc.ISCSIInitiatorGroup{Tag: p.Tag}
	if !addInitiators(g, p.Initiators, p.Netmasks) {
		return errInvalidParams
	}
	e.iscsi.initiators = append(e.iscsi.initiators, g)
	return nil
}

// addInitiators adds all names and netmasks. If one of them is listed twice or is too long,
// addInitiators adds none of them and returns false.
func addInitiators(g *spdkrpc.ISCSIInitiatorGroup, names, netmasks []string) bool {
	names, netmasks = slices.Concat(g.Initiators, names), slices.Concat(g.Netmasks, netmasks)
	if !distinct(names, maxInitiatorName) || !distinct(netmasks, maxNetmask) {
		return false
	}
	g.Initiators, g.Netmasks = names, netmasks
	return true
}

func distinct(list []string, maxLength int) bool {
	for i, s := range list {
		if len(s) > maxLength || slices.Contains(list[:i], s) {
			return false
		}
	}
	return true
}

func (e *engine) iscsiAddInitiators(p spdkrpc.ISCSIInitiatorGroupAddInitiatorsParams) error {
	g, err := e.initiatorGroup(p.Tag)
	if err != nil {
		return err
	}
	if !addInitiators(g, p.Initiators, p.Netmasks) {
		return errInvalidParams
	}
	return e.exportNodes()
}

func (e *engine) iscsiRemoveInitiators(p spdkrpc.ISCSIInitiatorGroupRemoveInitiatorsParams) error {
	g, err := e.initiatorGroup(p.Tag)
	if err != nil {
		return err
	}
	missing := func(have []string) func(string) bool { return func(s string) bool { return !slices.Contains(have, s) } }
	if slices.ContainsFunc(p.Initiators, missing(g.Initiators)) || slices.ContainsFunc(p.Netmasks, missing(g.Netmasks)) {
		return errInvalidParams
	}
	g.Initiators = slices.DeleteFunc(g.Initiators, func(s string) bool { return slices.Contains(p.Initiators, s) })
	g.Netmasks = slices.DeleteFunc(g.Netmasks, func(s string) bool { return slices.Contains(p.Netmasks, s) })
	return e.exportNodes()
}

func (e *engine) iscsiDeleteInitiatorGroup(p spdkrpc.ISCSIDeleteInitiatorGroupParams) error {
	g, err := e.initiatorGroup(p.Tag)
	if err != nil {
		return err
	}
	e.iscsi.initiators = slices.DeleteFunc(e.iscsi.initiators, func(o *spdkrpc.ISCSIInitiatorGroup) bool { return o == g })
	return e.dropMaps(func(m spdkrpc.ISCSIPGIGMap) bool { return m.IGTag == p.Tag })
}
