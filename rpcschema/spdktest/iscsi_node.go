package spdktest

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A targetNode is an iSCSI target. Its LUNs open their bdevs without claiming them. A LUN is
// removed together with its bdev.
type targetNode struct {
	spdkrpc.ISCSITargetNode // without its LUNs
	device                  int32
	luns                    []*lun // by number
}

type lun struct {
	id   int32
	bdev *bdev
	user *bdevUser
}

const (
	maxLUN         = 256
	lowestFreeLUN  = -1
	maxTargetNodes = 128
)

func init() {
	confirm("iscsi_create_target_node", (*engine).iscsiCreateNode)
	confirm("iscsi_delete_target_node", (*engine).iscsiDeleteNode)
	query("iscsi_get_target_nodes", (*engine).iscsiGetNodes)
	confirm("iscsi_target_node_add_lun", (*engine).iscsiAddLUN)
	confirm("iscsi_target_node_add_pg_ig_maps", (*engine).iscsiAddMaps)
	confirm("iscsi_target_node_remove_pg_ig_maps", (*engine).iscsiRemoveMaps)
	confirm("iscsi_target_node_set_auth", (*engine).iscsiNodeSetAuth)
	confirm("iscsi_target_node_set_redirect", (*engine).iscsiSetRedirect)
	confirm("iscsi_target_node_request_logout", func(e *engine, p spdkrpc.ISCSITargetNodeRequestLogoutParams) error {
		if e.node(p.Name) == nil {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Target %s is not found", p.Name)
		}
		return nil
	})
}

func (e *engine) node(name string) *targetNode {
	i := slices.IndexFunc(e.iscsi.nodes, func(n *targetNode) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return e.iscsi.nodes[i]
}

func (e *engine) iscsiCreateNode(p spdkrpc.ISCSICreateTargetNodeParams) error {
	name, ok := e.iscsi.fullName(p.Name)
	c := newChap(p.DisableCHAP, p.RequireCHAP, p.MutualCHAP, p.CHAPGroup)
	switch {
	case !ok, !c.consistent(), len(p.PGIGMaps) == 0, e.node(name) != nil, len(e.iscsi.nodes) == maxTargetNodes:
		return errInvalidParams
	case e.before("v26.05") && slices.ContainsFunc(p.LUNs, func(l spdkrpc.ISCSILUNParams) bool { return l.LUNID == nil }):
		return errInvalidParams
	case !slices.ContainsFunc(p.LUNs, func(l spdkrpc.ISCSILUNParams) bool { return value(l.LUNID) == 0 }):
		return errInvalidParams
	}
	n := &targetNode{ISCSITargetNode: spdkrpc.ISCSITargetNode{
		Name: name, AliasName: new(p.AliasName), PGIGMaps: []spdkrpc.ISCSIPGIGMap{}, QueueDepth: p.QueueDepth,
		DisableCHAP: c.disable, RequireCHAP: c.require, MutualCHAP: c.mutual, CHAPGroup: c.group,
		HeaderDigest: value(p.HeaderDigest), DataDigest: value(p.DataDigest),
	}}
	if limit := int32(e.iscsi.options.MaxQueueDepth); n.QueueDepth < 1 || n.QueueDepth > limit {
		n.QueueDepth = limit
	}
	for _, l := range p.LUNs {
		if !e.addLUN(n, l.BdevName, value(l.LUNID)) {
			n.close()
			return errInvalidParams
		}
	}
	if !e.addMaps(n, p.PGIGMaps) {
		n.close()
		return errInvalidParams
	}
	for slices.ContainsFunc(e.iscsi.nodes, func(o *targetNode) bool { return o.device == n.device }) {
		n.device++
	}
	e.iscsi.nodes = append(e.iscsi.nodes, n)
	return e.exportNode(n)
}

// datedName matches the beginning of a name with a date.
var datedName = regexp.MustCompile(`(?i)^iqn\.[0-9]{4}-[0-9]{2}\.`)

// fullName adds the prefix (the target's node base) to a name that lacks it.
func (t *iscsiTarget) fullName(name string) (string, bool) {
	complete := slices.ContainsFunc([]string{"iqn.", "eui.", "naa."}, func(prefix string) bool {
		return len(name) >= 4 && strings.EqualFold(name[:4], prefix)
	})
	if !complete {
		name = t.options.NodeBase + ":" + name
	}
	bad := func(c rune) bool {
		return c < '-' || c == '/' || c >= ';' && c <= '@' || c >= '[' && c <= '`' || c >= '{' && c <= 0x7f
	}
	if len(name) > maxInitiatorName || strings.ContainsFunc(name, bad) {
		return "", false
	}
	if strings.EqualFold(name[:4], "iqn.") && !datedName.MatchString(name) {
		return "", false
	}
	return name, true
}

func (n *targetNode) close() {
	for _, l := range n.luns {
		l.bdev.close(l.user)
	}
}

func (e *engine) addLUN(n *targetNode, bdevName string, id int32) bool {
	if id == lowestFreeLUN {
		for id = 0; slices.ContainsFunc(n.luns, func(l *lun) bool { return l.id == id }); id++ {
		}
	}
	if id < 0 || id >= maxLUN || slices.ContainsFunc(n.luns, func(l *lun) bool { return l.id == id }) {
		return false
	}
	b, ok := e.bdevs.find(bdevName)
	if !ok {
		return false
	}
	l := &lun{id: id, bdev: b}
	user, err := b.open(true, func() {
		n.luns = slices.DeleteFunc(n.luns, func(o *lun) bool { return o == l })
		e.stale = append(e.stale, func() error { return e.exportNode(n) })
	})
	if err != nil {
		return false
	}
	l.user = user
	n.luns = append(n.luns, l)
	slices.SortFunc(n.luns, func(a, b *lun) int { return cmp.Compare(a.id, b.id) })
	return true
}

func (e *engine) iscsiAddLUN(p spdkrpc.ISCSITargetNodeAddLUNParams) error {
	n := e.node(p.Name)
	if n == nil || !e.addLUN(n, p.BdevName, or(p.LUNID, lowestFreeLUN)) {
		return errInvalidParams
	}
	return e.exportNode(n)
}

// addMaps adds all pairs, or none of them if one is invalid.
func (e *engine) addMaps(n *targetNode, maps []spdkrpc.ISCSIPGIGMap) bool {
	all := slices.Clone(n.PGIGMaps)
	for _, m := range maps {
		_, errPortal := e.portalGroup(m.PGTag)
		_, errInitiator := e.initiatorGroup(m.IGTag)
		if errPortal != nil || errInitiator != nil || slices.Contains(all, m) {
			return false
		}
		all = append(all, m)
	}
	n.PGIGMaps = all
	return true
}

func (e *engine) iscsiAddMaps(p spdkrpc.ISCSITargetNodeAddPGIGMapsParams) error {
	n := e.node(p.Name)
	if n == nil || !e.addMaps(n, p.PGIGMaps) {
		return errInvalidParams
	}
	return e.exportNode(n)
}

func (e *engine) iscsiRemoveMaps(p spdkrpc.ISCSITargetNodeRemovePGIGMapsParams) error {
	n := e.node(p.Name)
	if n == nil || slices.ContainsFunc(p.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return !slices.Contains(n.PGIGMaps, m) }) {
		return errInvalidParams
	}
	n.PGIGMaps = slices.DeleteFunc(n.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return slices.Contains(p.PGIGMaps, m) })
	return e.exportNode(n)
}

// dropMaps removes the pairs of a deleted group.
func (e *engine) dropMaps(gone func(spdkrpc.ISCSIPGIGMap) bool) error {
	for _, n := range e.iscsi.nodes {
		n.PGIGMaps = slices.DeleteFunc(n.PGIGMaps, gone)
	}
	return e.exportNodes()
}

func (e *engine) iscsiDeleteNode(p spdkrpc.ISCSIDeleteTargetNodeParams) error {
	n := e.node(p.Name)
	if n == nil {
		return errno(syscall.ENOENT)
	}
	n.close()
	e.iscsi.nodes = slices.DeleteFunc(e.iscsi.nodes, func(o *targetNode) bool { return o == n })
	return e.unexport(n.Name)
}

func (e *engine) iscsiGetNodes() ([]spdkrpc.ISCSITargetNode, error) {
	list := []spdkrpc.ISCSITargetNode{}
	for _, n := range e.iscsi.nodes {
		out := n.ISCSITargetNode
		out.PGIGMaps, out.LUNs = slices.Clone(n.PGIGMaps), []spdkrpc.ISCSILUN{}
		for _, l := range n.luns {
			out.LUNs = append(out.LUNs, spdkrpc.ISCSILUN{BdevName: l.bdev.name, LUNID: l.id})
		}
		list = append(list, out)
	}
	return list, nil
}

func (e *engine) iscsiNodeSetAuth(p spdkrpc.ISCSITargetNodeSetAuthParams) error {
	n := e.node(p.Name)
	if n == nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Could not find target %s", p.Name)
	}
	c := newChap(p.DisableCHAP, p.RequireCHAP, p.MutualCHAP, p.CHAPGroup)
	if !c.consistent() {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid combination of auth params")
	}
	n.DisableCHAP, n.RequireCHAP, n.MutualCHAP, n.CHAPGroup = c.disable, c.require, c.mutual, c.group
	return nil
}

func (e *engine) iscsiSetRedirect(p spdkrpc.ISCSITargetNodeSetRedirectParams) error {
	n := e.node(p.Name)
	g, err := e.portalGroup(p.PGTag)
	if n == nil || err != nil || g.Private || !slices.ContainsFunc(n.PGIGMaps, func(m spdkrpc.ISCSIPGIGMap) bool { return m.PGTag == p.PGTag }) {
		return errInvalidParams
	}
	if p.RedirectHost == nil && p.RedirectPort == nil {
		return nil
	}
	to := spdkrpc.ISCSIPortal{Host: value(p.RedirectHost), Port: value(p.RedirectPort)}
	if slices.Contains(g.Portals, to) || !isAddress(portalAddress(to)) {
		return errInvalidParams
	}
	return nil
}

// exportNode writes the layout of a target node. The node is exported while a portal group that has
// a portal is mapped to it.
func (e *engine) exportNode(n *targetNode) error {
	if e.dir == nil || !slices.Contains(e.iscsi.nodes, n) {
		return nil
	}
	x := exported{name: n.Name, volumes: map[string]string{}}
	reachable := false
	for _, m := range n.PGIGMaps {
		portals, errPortal := e.portalGroup(m.PGTag)
		group, errInitiator := e.initiatorGroup(m.IGTag)
		if errPortal != nil || errInitiator != nil || len(portals.Portals) == 0 {
			continue
		}
		reachable = true
		for _, name := range group.Initiators {
			if name == "ANY" {
				name = "*"
			}
			x.hosts = append(x.hosts, name)
		}
	}
	if !reachable {
		return e.unexport(n.Name)
	}
	for _, l := range n.luns {
		if file := e.dataOf(l.bdev); file != "" {
			x.volumes[l.bdev.uuid] = file
		}
	}
	return e.dir.write(x)
}

func (e *engine) exportNodes() error {
	for _, n := range e.iscsi.nodes {
		if err := e.exportNode(n); err != nil {
			return err
		}
	}
	return nil
}
