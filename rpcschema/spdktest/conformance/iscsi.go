package conformance

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// tag returns a unique tag for a group.
func (s *suite) tag() int { return 1_000_000 + rand.IntN(1_000_000_000) }

// portalGroup creates a portal group with one portal.
func (s *suite) portalGroup() int {
	s.Helper()
	tag := s.tag()
	s.undo("iscsi_delete_portal_group", P{"tag": tag})
	s.ok("iscsi_create_portal_group", P{"tag": tag, "portals": []P{{"host": "127.0.0.1", "port": s.port()}}})
	return tag
}

func (s *suite) initiatorGroup(names ...string) int {
	s.Helper()
	tag := s.tag()
	s.undo("iscsi_delete_initiator_group", P{"tag": tag})
	s.ok("iscsi_create_initiator_group", P{"tag": tag, "initiators": names, "netmasks": []string{"ANY"}})
	return tag
}

func testIscsiGroups(s *suite) {
	portals := func(tag int) *spdkrpc.ISCSIPortalGroup {
		s.Helper()
		var list []spdkrpc.ISCSIPortalGroup
		s.get(&list, "iscsi_get_portal_groups", nil)
		i := slices.IndexFunc(list, func(g spdkrpc.ISCSIPortalGroup) bool { return g.Tag == int32(tag) })
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	pg, port := s.tag(), s.port()
	s.undo("iscsi_delete_portal_group", P{"tag": pg})
	s.ok("iscsi_create_portal_group", P{"tag": pg, "portals": []P{{"host": "127.0.0.1", "port": port}}})
	assert.Equal(s, &spdkrpc.ISCSIPortalGroup{Tag: int32(pg), Portals: []spdkrpc.ISCSIPortal{{Host: "127.0.0.1", Port: port}}}, portals(pg))
	// Do not test a portal that is already in another group, because v26.05 crashes.
	s.fails(invalidParams, "iscsi_create_portal_group", P{"tag": pg, "portals": []P{{"host": "127.0.0.1", "port": s.port()}}})
	other := s.tag()
	for _, portal := range []P{
		{"host": "192.0.2.77", "port": "3260"}, {"host": "nonsense", "port": "3260"}, {"host": "127.0.0.1", "port": "99999"},
		{"host": "127.0.0.1", "port": 3260}, {"host": "127.0.0.1"},
	} {
		s.fails(invalidParams, "iscsi_create_portal_group", P{"tag": other, "portals": []P{portal}})
	}
	assert.Nil(s, portals(other))
	s.undo("iscsi_delete_portal_group", P{"tag": other})
	s.ok("iscsi_create_portal_group", P{"tag": other, "portals": []P{}, "private": true})
	assert.Equal(s, &spdkrpc.ISCSIPortalGroup{Tag: int32(other), Portals: []spdkrpc.ISCSIPortal{}, Private: true}, portals(other))
	s.ok("iscsi_start_portal_group", P{"tag": other})
	for _, method := range []string{"iscsi_start_portal_group", "iscsi_delete_portal_group", "iscsi_delete_initiator_group"} {
		s.fails(invalidParams, method, P{"tag": s.tag()})
	}
	s.ok("iscsi_portal_group_set_auth", P{"tag": pg, "chap_group": 1, "require_chap": true})
	s.fails(invalidParams, "iscsi_portal_group_set_auth", P{"tag": s.tag()})
	s.ok("iscsi_delete_portal_group", P{"tag": other})
	assert.Nil(s, portals(other))

	initiators := func(tag int) *spdkrpc.ISCSIInitiatorGroup {
		s.Helper()
		var list []spdkrpc.ISCSIInitiatorGroup
		s.get(&list, "iscsi_get_initiator_groups", nil)
		i := slices.IndexFunc(list, func(g spdkrpc.ISCSIInitiatorGroup) bool { return g.Tag == int32(tag) })
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	ig := s.initiatorGroup("iqn.2016-06.io.host:a", "!iqn.2016-06.io.host:b")
	want := &spdkrpc.ISCSIInitiatorGroup{Tag: int32(ig), Initiators: []string{"iqn.2016-06.io.host:a", "!iqn.2016-06.io.host:b"}, Netmasks: []string{"ANY"}}
	assert.Equal(s, want, initiators(ig))
	group := func(tag int, names, masks []string) P { return P{"tag": tag, "initiators": names, "netmasks": masks} }
	const create, add, remove = "iscsi_create_initiator_group", "iscsi_initiator_group_add_initiators", "iscsi_initiator_group_remove_initiators"
	s.fails(invalidParams, create, group(ig, []string{"ANY"}, []string{"ANY"}))
	free := s.tag()
	s.fails(invalidParams, create, group(free, []string{}, []string{}))
	s.fails(invalidParams, create, P{"tag": free, "initiators": []string{"ANY"}})
	s.fails(invalidParams, create, group(free, []string{"ANY", "ANY"}, []string{"ANY"}))
	s.fails(invalidParams, create, group(free, []string{strings.Repeat("x", 300)}, []string{"ANY"}))
	assert.Nil(s, initiators(free))

	s.ok(add, group(ig, []string{"iqn.2016-06.io.host:c"}, []string{"192.168.0.0/16"}))
	want.Initiators, want.Netmasks = append(want.Initiators, "iqn.2016-06.io.host:c"), append(want.Netmasks, "192.168.0.0/16")
	assert.Equal(s, want, initiators(ig))
	s.fails(invalidParams, add, group(ig, []string{"iqn.2016-06.io.host:d", "iqn.2016-06.io.host:c"}, nil))
	s.fails(invalidParams, add, group(free, []string{"iqn.2016-06.io.host:c"}, []string{}))
	assert.Equal(s, want, initiators(ig), "all or none")
	s.ok(remove, P{"tag": ig, "initiators": []string{"iqn.2016-06.io.host:c"}})
	s.fails(invalidParams, remove, P{"tag": ig, "initiators": []string{"iqn.2016-06.io.host:a", "iqn.2016-06.io.host:c"}})
	s.fails(invalidParams, remove, P{"tag": free, "initiators": []string{"x"}})
	assert.ElementsMatch(s, want.Initiators[:2], initiators(ig).Initiators, "the call removes all pairs or none, in any order")
	s.ok("iscsi_delete_initiator_group", P{"tag": ig})
	assert.Nil(s, initiators(ig))
}

func testIscsiAuth(s *suite) {
	secrets := func(tag int) []spdkrpc.ISCSIAuthSecret {
		s.Helper()
		var list []spdkrpc.ISCSIAuthGroup
		s.get(&list, "iscsi_get_auth_groups", nil)
		i := slices.IndexFunc(list, func(g spdkrpc.ISCSIAuthGroup) bool { return g.Tag == int32(tag) })
		if i < 0 {
			return nil
		}
		return list[i].Secrets
	}
	tag, other := s.tag(), s.tag()
	s.undo("iscsi_delete_auth_group", P{"tag": tag})
	s.undo("iscsi_delete_auth_group", P{"tag": other})
	u1 := P{"user": "u1", "secret": "secretsecret1", "muser": "mu1", "msecret": "msecretsecret1"}
	s.ok("iscsi_create_auth_group", P{"tag": tag, "secrets": []P{u1}})
	first := spdkrpc.ISCSIAuthSecret{User: "u1", Secret: "secretsecret1", Muser: new("mu1"), Msecret: new("msecretsecret1")}
	assert.Equal(s, []spdkrpc.ISCSIAuthSecret{first}, secrets(tag))
	s.fails(invalidParams, "iscsi_create_auth_group", P{"tag": tag})
	for _, bad := range [][]P{{{"user": "x"}}, {{"user": "x", "secret": "y", "muser": "m"}}, {u1, u1}, {{"user": strings.Repeat("u", 300), "secret": "s"}}} {
		s.fails(invalidParams, "iscsi_create_auth_group", P{"tag": other, "secrets": bad})
	}
	s.ok("iscsi_auth_group_add_secret", P{"tag": tag, "user": "u2", "secret": "secretsecret2"})
	assert.Equal(s, []spdkrpc.ISCSIAuthSecret{first, {User: "u2", Secret: "secretsecret2"}}, secrets(tag))
	s.fails(invalidParams, "iscsi_auth_group_add_secret", P{"tag": tag, "user": "u2", "secret": "other"})
	s.fails(invalidParams, "iscsi_auth_group_add_secret", P{"tag": tag, "user": "u3", "secret": "s", "muser": "m"})
	s.fails(invalidParams, "iscsi_auth_group_add_secret", P{"tag": s.tag(), "user": "u2", "secret": "s"})
	s.ok("iscsi_auth_group_remove_secret", P{"tag": tag, "user": "u1"})
	s.fails(invalidParams, "iscsi_auth_group_remove_secret", P{"tag": tag, "user": "u1"})
	s.fails(invalidParams, "iscsi_auth_group_remove_secret", P{"tag": s.tag(), "user": "u2"})
	s.ok("iscsi_delete_auth_group", P{"tag": tag})
	s.fails(invalidParams, "iscsi_delete_auth_group", P{"tag": tag})
	assert.Nil(s, secrets(tag))

	s.undo("iscsi_set_discovery_auth", P{})
	s.ok("iscsi_set_discovery_auth", P{"chap_group": tag, "require_chap": true, "mutual_chap": true})
	var o spdkrpc.ISCSIOptions
	s.get(&o, "iscsi_get_options", nil)
	assert.True(s, o.RequireCHAP && o.MutualCHAP && !o.DisableCHAP)
	assert.EqualValues(s, tag, o.CHAPGroup)
	s.fails(invalidParams, "iscsi_set_discovery_auth", P{"chap_group": -1})
	s.fails(invalidParams, "iscsi_set_discovery_auth", P{"disable_chap": true, "require_chap": true})
	s.fails(invalidParams, "iscsi_set_discovery_auth", P{"mutual_chap": true})
	s.ok("iscsi_set_discovery_auth", P{"chap_group": 0})
}

func (s *suite) targetNode(name string) *spdkrpc.ISCSITargetNode {
	s.Helper()
	var list []spdkrpc.ISCSITargetNode
	s.get(&list, "iscsi_get_target_nodes", nil)
	i := slices.IndexFunc(list, func(n spdkrpc.ISCSITargetNode) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func testIscsiNodes(s *suite) {
	var o spdkrpc.ISCSIOptions
	s.get(&o, "iscsi_get_options", nil)
	pg, ig, ig2 := s.portalGroup(), s.initiatorGroup("ANY"), s.initiatorGroup("iqn.2016-06.io.host:a")
	m0, m1 := s.malloc("m0", 8), s.malloc("m1", 8)
	short := s.name("t1")
	full := o.NodeBase + ":" + short
	node := func(more P) P {
		p := P{"name": short, "alias_name": "alias", "pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": ig}}, "luns": []P{{"bdev_name": m0, "lun_id": 0}}, "queue_depth": 32}
		for k, v := range more {
			if p[k] = v; v == nil {
				delete(p, k)
			}
		}
		return p
	}
	const create = "iscsi_create_target_node"
	s.undo("iscsi_delete_target_node", P{"name": full})
	s.ok(create, node(nil))
	maps := []spdkrpc.ISCSIPGIGMap{{PGTag: int32(pg), IGTag: int32(ig)}}
	want := &spdkrpc.ISCSITargetNode{Name: full, AliasName: new("alias"), PGIGMaps: maps, LUNs: []spdkrpc.ISCSILUN{{BdevName: m0, LUNID: 0}}, QueueDepth: 32}
	assert.Equal(s, want, s.targetNode(full))
	assert.False(s, s.bdev(m0).Claimed, "a LUN does not claim its bdev")
	s.fails(invalidParams, create, node(nil))
	s.fails(invalidParams, create, node(P{"luns": []P{{"bdev_name": m1, "lun_id": 0}}}))

	second := s.name("t2")
	s.undo("iscsi_delete_target_node", P{"name": o.NodeBase + ":" + second})
	for _, bad := range []P{
		{"luns": []P{{"bdev_name": s.name("nobody"), "lun_id": 0}}}, {"luns": []P{}}, {"luns": []P{{"bdev_name": m1, "lun_id": 5}}},
		{"luns": []P{{"bdev_name": m1, "lun_id": -2}}}, {"luns": []P{{"bdev_name": m0, "lun_id": 0}, {"bdev_name": m1, "lun_id": 0}}},
		{"pg_ig_maps": []P{{"pg_tag": s.tag(), "ig_tag": ig}}}, {"pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": s.tag()}}}, {"pg_ig_maps": []P{}},
		{"pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": ig}, {"pg_tag": pg, "ig_tag": ig}}},
		{"name": "Bad Name"}, {"name": "bad_name"}, {"name": "iqn.nonsense:x"}, {"disable_chap": true, "require_chap": true}, {"mutual_chap": true},
		{"alias_name": nil}, {"queue_depth": nil}, {"luns": nil}, {"pg_ig_maps": nil}, {"chap_group": -1},
	} {
		more := P{"name": second}
		for k, v := range bad {
			more[k] = v
		}
		s.fails(invalidParams, create, node(more))
	}
	assert.Nil(s, s.targetNode(o.NodeBase+":"+second))
	s.ok(create, node(P{"name": second, "queue_depth": 0, "require_chap": true, "mutual_chap": true, "chap_group": 7, "header_digest": true}))
	other := s.targetNode(o.NodeBase + ":" + second)
	assert.EqualValues(s, o.MaxQueueDepth, other.QueueDepth, "a value out of range is replaced with the largest")
	assert.True(s, other.RequireCHAP && other.MutualCHAP && other.HeaderDigest && !other.DataDigest)
	assert.EqualValues(s, 7, other.CHAPGroup)
	complete := "iqn.2001-01.com.example:" + s.prefix
	s.undo("iscsi_delete_target_node", P{"name": complete})
	s.ok(create, node(P{"name": complete, "alias_name": ""}))
	assert.NotNil(s, s.targetNode(complete), "several targets may contain the same bdev")

	pair := func(pg, ig int) P { return P{"name": full, "pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": ig}}} }
	s.ok("iscsi_target_node_add_pg_ig_maps", pair(pg, ig2))
	assert.Len(s, s.targetNode(full).PGIGMaps, 2)
	s.fails(invalidParams, "iscsi_target_node_add_pg_ig_maps", pair(pg, ig2))
	s.fails(invalidParams, "iscsi_target_node_add_pg_ig_maps", pair(s.tag(), ig2))
	s.ok("iscsi_target_node_remove_pg_ig_maps", pair(pg, ig2))
	s.fails(invalidParams, "iscsi_target_node_remove_pg_ig_maps", pair(pg, ig2))
	for _, method := range []string{"iscsi_target_node_add_pg_ig_maps", "iscsi_target_node_remove_pg_ig_maps"} {
		s.fails(invalidParams, method, P{"name": full + "x", "pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": ig}}})
	}
	assert.Equal(s, want, s.targetNode(full))

	auth := func(more P) P { more["name"] = full; return more }
	s.ok("iscsi_target_node_set_auth", auth(P{"require_chap": true, "chap_group": 3}))
	assert.True(s, s.targetNode(full).RequireCHAP)
	s.ok("iscsi_target_node_set_auth", auth(P{"disable_chap": true}))
	assert.True(s, s.targetNode(full).DisableCHAP)
	s.fails(invalidParams, "iscsi_target_node_set_auth", auth(P{"disable_chap": true, "require_chap": true}))
	s.fails(invalidParams, "iscsi_target_node_set_auth", auth(P{"chap_group": -1}))
	s.fails(invalidParams, "iscsi_target_node_set_auth", P{"name": full + "x"})
	s.ok("iscsi_target_node_request_logout", P{"name": full})
	s.fails(invalidParams, "iscsi_target_node_request_logout", P{"name": full + "x"})

	var devices []spdkrpc.SCSIDevice
	s.get(&devices, "scsi_get_devices", nil)
	assert.True(s, slices.ContainsFunc(devices, func(d spdkrpc.SCSIDevice) bool { return d.DeviceName == full }))
	var connections []spdkrpc.ISCSIConnection
	s.get(&connections, "iscsi_get_connections", nil)
	assert.Empty(s, connections)

	s.ok("iscsi_delete_initiator_group", P{"tag": ig})
	assert.Empty(s, s.targetNode(full).PGIGMaps, "pairs are removed together with their groups")
	s.fails(noEntry, "iscsi_delete_target_node", P{"name": short}) // an incomplete name
	s.ok("iscsi_delete_target_node", P{"name": full})
	s.fails(noEntry, "iscsi_delete_target_node", P{"name": full})
	assert.Nil(s, s.targetNode(full))
}

func testIscsiLUNs(s *suite) {
	store := s.store("lvs")
	v := s.lvol(store, "v", 64, true)
	pg, ig := s.portalGroup(), s.initiatorGroup("ANY")
	m0, m1, m2 := s.malloc("m0", 8), s.malloc("m1", 8), s.malloc("m2", 8)
	name := "iqn.2026-11.io.spdkgate:" + s.prefix
	s.undo("iscsi_delete_target_node", P{"name": name})
	s.ok("iscsi_create_target_node", P{
		"name": name, "alias_name": "", "pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": ig}}, "luns": []P{{"bdev_name": m0, "lun_id": 0}}, "queue_depth": 64,
	})
	luns := func() map[int32]string {
		s.Helper()
		all := map[int32]string{}
		for _, l := range s.targetNode(name).LUNs {
			all[l.LUNID] = l.BdevName
		}
		return all
	}
	lun := func(bdev string, id any) P {
		p := P{"name": name, "bdev_name": bdev}
		if id != nil {
			p["lun_id"] = id
		}
		return p
	}
	const add = "iscsi_target_node_add_lun"
	s.ok(add, lun(m1, 2))
	s.fails(invalidParams, add, lun(m2, 2))
	s.fails(invalidParams, add, lun(s.name("nobody"), 3))
	s.fails(invalidParams, add, lun(m2, -2))
	s.fails(invalidParams, add, P{"name": name + "x", "bdev_name": m2})
	s.ok(add, lun(m2, nil))
	s.ok(add, lun(m1, 64))
	s.ok(add, lun(store+"/v", -1))
	assert.Equal(s, map[int32]string{0: m0, 1: m2, 2: m1, 3: v, 64: m1}, luns())

	s.ok("bdev_lvol_resize", P{"name": v, "size_in_mib": 128})
	s.ok("bdev_lvol_delete", P{"name": v})
	s.ok("bdev_malloc_delete", P{"name": m1})
	assert.Equal(s, map[int32]string{0: m0, 1: m2}, luns(), "LUNs are removed together with their bdevs")

	nqn := s.subsystem("n")
	s.transport()
	// The call succeeds although the bdev is already a LUN.
	s.ok("nvmf_subsystem_add_ns", P{"nqn": nqn, "namespace": P{"bdev_name": m2}})
	claimed := s.malloc("claimed", 8)
	s.ok("nvmf_subsystem_add_ns", P{"nqn": nqn, "namespace": P{"bdev_name": claimed}})
	s.fails(invalidParams, add, lun(claimed, nil))
	require.NotContains(s, luns(), int32(2))
}
