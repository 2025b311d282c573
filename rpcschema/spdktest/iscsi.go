package spdktest

import (
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An iscsiTarget holds the state of the iSCSI target, which is lost when the process ends.
// Initiators cannot log in to the simulation.
type iscsiTarget struct {
	options    spdkrpc.ISCSIOptions
	optionsSet bool
	portals    []*portalGroup // in order of creation, like all lists here
	initiators []*spdkrpc.ISCSIInitiatorGroup
	auth       []*spdkrpc.ISCSIAuthGroup
	nodes      []*targetNode
}

func (t *iscsiTarget) init() {
	t.options = spdkrpc.ISCSIOptions{
		NodeBase: "iqn.2016-06.io.spdk", MaxSessions: 128, MaxConnectionsPerSession: 2, MaxQueueDepth: 64, DefaultTime2wait: 2,
		DefaultTime2retain: 20, FirstBurstLength: 8192, ImmediateData: true, NopTimeout: 60, NopInInterval: 30,
		MaxLargeDatainPerConnection: 64, MaxR2tPerConnection: 4, PDUPoolSize: 36864, ImmediateDataPoolSize: 16384, DataOutPoolSize: 2048,
	}
}

func init() {
	query("iscsi_get_options", func(e *engine) (spdkrpc.ISCSIOptions, error) { return e.iscsi.options, nil })
	confirm("iscsi_set_options", (*engine).iscsiSetOptions)
	confirm("iscsi_set_discovery_auth", (*engine).iscsiSetDiscoveryAuth)
	query("iscsi_get_connections", func(*engine) ([]spdkrpc.ISCSIConnection, error) { return []spdkrpc.ISCSIConnection{}, nil })
	query("iscsi_get_stats", func(*engine) (spdkrpc.ISCSIStats, error) { return spdkrpc.ISCSIStats{}, nil })
	query("scsi_get_devices", (*engine).scsiGetDevices)
}

// set copies *p to *into, unless p is nil.
func set[T any](into *T, p *T) {
	if p != nil {
		*into = *p
	}
}

func (e *engine) iscsiSetOptions(p spdkrpc.ISCSISetOptionsParams) error {
	if e.iscsi.optionsSet {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "Out of memory")
	}
	e.iscsi.optionsSet = true
	o := &e.iscsi.options
	if p.AuthFile != nil {
		o.AuthFile = p.AuthFile
	}
	set(&o.NodeBase, p.NodeBase)
	set(&o.NopTimeout, p.NopTimeout)
	set(&o.NopInInterval, p.NopInInterval)
	set(&o.DisableCHAP, p.DisableCHAP)
	set(&o.RequireCHAP, p.RequireCHAP)
	set(&o.MutualCHAP, p.MutualCHAP)
	set(&o.CHAPGroup, p.CHAPGroup)
	set(&o.MaxSessions, p.MaxSessions)
	set(&o.MaxQueueDepth, p.MaxQueueDepth)
	set(&o.MaxConnectionsPerSession, p.MaxConnectionsPerSession)
	set(&o.DefaultTime2wait, p.DefaultTime2wait)
	set(&o.DefaultTime2retain, p.DefaultTime2retain)
	set(&o.FirstBurstLength, p.FirstBurstLength)
	set(&o.ImmediateData, p.ImmediateData)
	set(&o.ErrorRecoveryLevel, p.ErrorRecoveryLevel)
	set(&o.AllowDuplicatedISID, p.AllowDuplicatedISID)
	set(&o.MaxLargeDatainPerConnection, p.MaxLargeDatainPerConnection)
	set(&o.MaxR2tPerConnection, p.MaxR2tPerConnection)
	set(&o.PDUPoolSize, p.PDUPoolSize)
	set(&o.ImmediateDataPoolSize, p.ImmediateDataPoolSize)
	set(&o.DataOutPoolSize, p.DataOutPoolSize)
	return nil
}

// A chap describes how initiators authenticate with CHAP.
type chap struct {
	disable, require, mutual bool
	group                    int32
}

func newChap(disable, require, mutual *bool, group *int32) chap {
	return chap{value(disable), value(require), value(mutual), value(group)}
}

// consistent implements SPDK's iscsi_check_chap_params.
func (c chap) consistent() bool {
	return c.group >= 0 && !(c.disable && (c.require || c.mutual)) && !(c.mutual && !c.require)
}

func (e *engine) iscsiSetDiscoveryAuth(p spdkrpc.ISCSISetDiscoveryAuthParams) error {
	c := newChap(p.DisableCHAP, p.RequireCHAP, p.MutualCHAP, p.CHAPGroup)
	if !c.consistent() {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid combination of CHAP params")
	}
	o := &e.iscsi.options
	o.DisableCHAP, o.RequireCHAP, o.MutualCHAP, o.CHAPGroup = c.disable, c.require, c.mutual, c.group
	return nil
}

func (e *engine) scsiGetDevices() ([]spdkrpc.SCSIDevice, error) {
	list := []spdkrpc.SCSIDevice{}
	for _, n := range e.iscsi.nodes {
		list = append(list, spdkrpc.SCSIDevice{ID: n.device, DeviceName: n.Name})
	}
	slices.SortFunc(list, func(a, b spdkrpc.SCSIDevice) int { return int(a.ID - b.ID) })
	return list, nil
}
