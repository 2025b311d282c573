package spdktest

import "github.com/spdkgate/spdkgate/rpcschema/spdkrpc"

// iscsiConfig writes CHAP secrets in plain text, as SPDK does.
func (e *engine) iscsiConfig() []configPart {
	t := &e.iscsi
	calls := []configCall{{"iscsi_set_options", t.options}}
	for _, g := range t.portals {
		calls = append(calls, configCall{"iscsi_create_portal_group", g.ISCSIPortalGroup})
	}
	for _, g := range t.initiators {
		calls = append(calls, configCall{"iscsi_create_initiator_group", g})
	}
	for _, n := range t.nodes {
		p := spdkrpc.ISCSICreateTargetNodeParams{
			Name: n.Name, AliasName: value(n.AliasName), PGIGMaps: n.PGIGMaps, LUNs: []spdkrpc.ISCSILUNParams{}, QueueDepth: n.QueueDepth,
			DisableCHAP: new(n.DisableCHAP), RequireCHAP: new(n.RequireCHAP), MutualCHAP: new(n.MutualCHAP), CHAPGroup: new(n.CHAPGroup),
			HeaderDigest: new(n.HeaderDigest), DataDigest: new(n.DataDigest),
		}
		for _, l := range n.luns {
			p.LUNs = append(p.LUNs, spdkrpc.ISCSILUNParams{BdevName: l.bdev.name, LUNID: new(l.id)})
		}
		calls = append(calls, configCall{"iscsi_create_target_node", p})
	}
	for _, g := range t.auth {
		p := spdkrpc.ISCSICreateAuthGroupParams{Tag: g.Tag, Secrets: append([]spdkrpc.ISCSIAuthSecret{}, g.Secrets...)}
		calls = append(calls, configCall{"iscsi_create_auth_group", p})
	}
	return []configPart{oneByOne(calls...)}
}
