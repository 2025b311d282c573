package export_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// savedObjects simulates a proxy whose saved configuration contains calls that the target has not
// executed since its restart. A call that removes an object that these calls would create fails in
// SPDK, but removes the object from the saved configuration.
type savedObjects struct {
	spdkrpc.Caller
	missing []spdkrpc.ProxyMissingExport
	again   bool  // whether the proxy continues to report removed calls
	fails   error // returned by the first removal
	removed []string
}

// remove simulates a call that removes the object for which is returns true. If the object is not
// missing, called is false, and the target must execute the call. refusal is SPDK's response.
func (s *savedObjects) remove(object string, refusal error, is func(spdkrpc.ProxyMissingExport) bool) (called bool, err error) {
	if !slices.ContainsFunc(s.missing, is) {
		return false, nil
	}
	s.removed = append(s.removed, object)
	if s.fails != nil {
		return true, s.fails
	}
	if !s.again {
		s.missing = slices.DeleteFunc(s.missing, is)
	}
	return true, refusal
}

// savedExports is like savedObjects, for NVMe-oF subsystems.
type savedExports struct{ savedObjects }

func (s *savedExports) Call(ctx context.Context, method string, params, result any) error {
	remove := func(object string, is func(spdkrpc.ProxyMissingExport) bool) error {
		refusal := &spdkrpc.Error{Method: method, Kind: spdkrpc.InvalidParams, Code: -32602, Message: "Invalid parameters"}
		if called, err := s.remove(object, refusal, is); called {
			return err
		}
		return s.Caller.Call(ctx, method, params, result)
	}
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var p struct{ NQN, Host *string }
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	switch method {
	case "spdkgate_config_await":
		for _, m := range s.missing {
			if (p.NQN == nil || m.NQN != nil && *p.NQN == *m.NQN) && (p.Host == nil || m.Host != nil && *p.Host == *m.Host) {
				*result.(*[]spdkrpc.ProxyMissingExport) = append(*result.(*[]spdkrpc.ProxyMissingExport), m)
			}
		}
		return nil
	case "nvmf_subsystem_remove_host":
		return remove("host "+*p.Host, func(m spdkrpc.ProxyMissingExport) bool {
			return m.NQN != nil && *m.NQN == *p.NQN && m.Host != nil && *m.Host == *p.Host
		})
	case "nvmf_delete_subsystem":
		return remove("subsystem "+*p.NQN, func(m spdkrpc.ProxyMissingExport) bool { return m.NQN != nil && *m.NQN == *p.NQN })
	}
	return s.Caller.Call(ctx, method, params, result)
}

// Only calls that would make a restarted target export the volume again are removed from the saved
// configuration.
func TestWithdrawnExportIsRemovedFromSavedConfiguration(t *testing.T) {
	n1, n2 := drivertest.MultipathHost("n1"), drivertest.Host("n2")
	nqn := export.NQN(volumeV)
	admits := func(hosts ...string) (list []spdkrpc.ProxyMissingExport) {
		for _, h := range hosts {
			list = append(list, spdkrpc.ProxyMissingExport{NQN: &nqn, Method: "nvmf_subsystem_add_host", Host: &h})
		}
		return list
	}
	create := []spdkrpc.ProxyMissingExport{{NQN: &nqn, Method: "nvmf_create_subsystem"}}
	other := []spdkrpc.ProxyMissingExport{{NQN: new(export.NQN(volumeW)), Method: "nvmf_create_subsystem"}}
	broken := &spdkrpc.Error{Method: "m", Kind: spdkrpc.Denied}
	for name, c := range map[string]struct {
		missing  []spdkrpc.ProxyMissingExport
		host     *export.Host
		exported bool // whether the target exports the volume to n2
		again    bool
		fails    error
		removed  []string
		err      error
	}{
		"nothing":                     {host: &n1},
		"nothing, all":                {},
		"another volume":              {missing: other, host: &n1},
		"the subsystem alone":         {missing: create, host: &n1},
		"the subsystem alone, all":    {missing: create, removed: []string{"subsystem " + nqn}},
		"the host":                    {missing: slices.Concat(create, admits(n1.NQN)), host: &n1, removed: []string{"subsystem " + nqn}},
		"its name with multipath":     {missing: admits(n1.Multipath), host: &n1, removed: []string{"subsystem " + nqn}},
		"another host":                {missing: admits(n2.NQN), host: &n1},
		"another host, all":           {missing: admits(n2.NQN), removed: []string{"subsystem " + nqn}},
		"both hosts":                  {missing: admits(n1.NQN, n1.Multipath, n2.NQN), host: &n1, removed: []string{"host " + n1.NQN, "host " + n1.Multipath}},
		"exported to another":         {missing: admits(n1.NQN), host: &n1, exported: true, removed: []string{"host " + n1.NQN}},
		"it stays":                    {missing: admits(n1.NQN), host: &n1, again: true, removed: []string{"subsystem " + nqn, "subsystem " + nqn, "subsystem " + nqn}, err: export.ErrBusy},
		"it cannot be removed":        {missing: admits(n1.NQN), host: &n1, fails: broken, removed: []string{"subsystem " + nqn}, err: spdkrpc.Denied},
		"the host cannot be removed":  {missing: admits(n1.NQN, n2.NQN), host: &n1, fails: broken, removed: []string{"host " + n1.NQN}, err: spdkrpc.Denied},
		"it stays, exported to other": {missing: admits(n1.NQN), host: &n1, exported: true, again: true, removed: []string{"host " + n1.NQN, "host " + n1.NQN, "host " + n1.NQN}, err: export.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, export.TCP, "")
			if c.exported {
				id := volumeV
				_, err := f.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: &id, UUID: &id, NumBlocks: 1024, BlockSize: 4096})
				require.NoError(t, err)
				require.NoError(t, admit(t.Context(), f.Service, id, n2))
			}
			saved := &savedExports{savedObjects{Caller: f.fault, missing: slices.Clone(c.missing), again: c.again, fails: c.fails}}
			err := f.through(saved).Withdraw(t.Context(), volumeV, c.host)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, c.removed, saved.removed)
			if c.exported {
				assert.Equal(t, 1, f.admitted(t, n2, volumeV))
			}
		})
	}
}

// A restarted target would admit the hosts in its saved configuration. An exclusive export is
// refused while the saved configuration admits another host or contains a fence mark of this host.
func TestSavedHostPreventsAnExclusiveExport(t *testing.T) {
	n1, n2 := drivertest.MultipathHost("n1"), drivertest.Host("n2")
	mark := strings.Replace(n1.NQN, n1.NQN[:strings.LastIndexByte(n1.NQN, ':')+1], "nqn.2020-04.io.spdk.csi:fenced:", 1)
	for name, c := range map[string]struct {
		nqn, host *string
		shared    bool
		refused   error
	}{
		"another host":                   {new(export.NQN(volumeV)), &n2.NQN, false, export.ErrInUse},
		"another host, shared":           {new(export.NQN(volumeV)), &n2.NQN, true, nil},
		"this host":                      {new(export.NQN(volumeV)), &n1.NQN, false, nil},
		"this host's name for multipath": {new(export.NQN(volumeV)), &n1.Multipath, false, nil},
		"no host":                        {new(export.NQN(volumeV)), nil, false, nil},
		"another host of another volume": {new(export.NQN(volumeW)), &n2.NQN, false, nil},
		"this host's mark":               {&mark, nil, false, export.ErrFenced},
		"this host's mark, shared":       {&mark, nil, true, export.ErrFenced},
		"another host's mark":            {new(mark + "x"), nil, false, nil},
		"no subsystem":                   {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, export.TCP, "")
			ctx, id := t.Context(), volumeV
			_, err := f.rpc.BdevMallocCreate(ctx, spdkrpc.BdevMallocCreateParams{Name: &id, UUID: &id, NumBlocks: 1024, BlockSize: 4096})
			require.NoError(t, err)
			add := func(s *export.Service) error {
				if c.shared {
					_, err := s.Share(ctx, id, n1, mayExport)
					return err
				}
				return admit(ctx, s, id, n1)
			}
			require.NoError(t, add(f.Service))
			s := f.through(&savedExports{savedObjects{Caller: f.fault, missing: []spdkrpc.ProxyMissingExport{{NQN: c.nqn, Host: c.host}}}})
			err = add(s)
			if c.refused == nil {
				require.NoError(t, err)
				assert.Equal(t, 1, f.admitted(t, n1, id))
				return
			}
			require.ErrorIs(t, err, c.refused)
			assert.Zero(t, f.admitted(t, n1, id))
		})
	}
}

// A fenced host is also removed from exports that a restarted target would create.
func TestFencedHostIsRemovedFromSavedConfiguration(t *testing.T) {
	for name, h := range map[string]export.Host{"multipath": drivertest.MultipathHost("n1"), "one name": drivertest.Host("n1")} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, export.TCP, "")
			ctx := t.Context()
			missing := []spdkrpc.ProxyMissingExport{{NQN: new(export.NQN(volumeV)), Host: &h.NQN}, {NQN: new(export.NQN(volumeW)), Host: new("nqn.2026-11.io.example:other")}}
			if h.Multipath != "" {
				missing = append(missing, spdkrpc.ProxyMissingExport{NQN: new(export.NQN(volumeW)), Host: &h.Multipath})
			}
			saved := &savedExports{savedObjects{Caller: f.fault, missing: slices.Clone(missing)}}
			s := f.through(saved)
			planned, err := s.Fence(ctx, h, "n1", true)
			require.NoError(t, err)
			assert.Len(t, planned, len(missing), "the mark, and each saved call of this host")
			assert.Empty(t, saved.removed, "a dry run changes nothing")
			done, err := s.Fence(ctx, h, "n1", false)
			require.NoError(t, err)
			assert.ElementsMatch(t, planned, done)
			assert.Len(t, saved.removed, len(missing)-1)
			assert.Len(t, saved.missing, 1, "the other host's call stays")
			assert.Contains(t, done, export.Fencing{Export: export.NQN(volumeV), Change: "remove host " + h.NQN + " from the saved configuration"})

			saved.missing, saved.fails = slices.Clone(missing), &spdkrpc.Error{Method: "m", Kind: spdkrpc.Denied}
			_, err = s.Fence(ctx, h, "n1", false)
			require.ErrorIs(t, err, spdkrpc.Denied)
		})
	}
}

// Unfence removes a fence mark from the saved configuration even if the target has lost the mark in
// a restart.
func TestRemovedFenceIsRemovedFromSavedConfiguration(t *testing.T) {
	h := drivertest.Host("n1")
	f := newFixture(t, export.TCP, "")
	ctx := t.Context()
	_, err := f.Fence(ctx, h, "n1", false)
	require.NoError(t, err)
	subsystems, err := f.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	mark := subsystems[len(subsystems)-1].NQN
	_, err = f.Unfence(ctx, h, false)
	require.NoError(t, err)

	saved := &savedExports{savedObjects{Caller: f.fault, missing: []spdkrpc.ProxyMissingExport{{NQN: &mark, Method: "nvmf_create_subsystem"}}}}
	was, err := f.through(saved).Unfence(ctx, h, true)
	require.NoError(t, err)
	assert.False(t, was)
	assert.Empty(t, saved.removed, "a dry run changes nothing")
	saved.fails = &spdkrpc.Error{Method: "m", Kind: spdkrpc.Denied}
	_, err = f.through(saved).Unfence(ctx, h, false)
	require.ErrorIs(t, err, spdkrpc.Denied)
	saved.fails, saved.removed = nil, nil
	_, err = f.through(saved).Unfence(ctx, h, false)
	require.NoError(t, err)
	assert.Equal(t, []string{"subsystem " + mark}, saved.removed)
	assert.Empty(t, saved.missing)
}

// connections is a Caller that returns iSCSI connections or an error.
type connections struct {
	spdkrpc.Caller
	list []spdkrpc.ISCSIConnection
	err  error
}

func (c connections) Call(ctx context.Context, method string, params, result any) error {
	if list, ok := result.(*[]spdkrpc.ISCSIConnection); ok {
		*list = c.list
		return c.err
	}
	if method == "nvmf_subsystem_get_controllers" && c.err != nil {
		return c.err
	}
	return c.Caller.Call(ctx, method, params, result)
}

func TestConnectedHostsAreListed(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	list := []spdkrpc.ISCSIConnection{
		{TargetNodeName: export.IQN(volumeV), InitiatorAddr: "192.0.2.1"}, {TargetNodeName: export.IQN(volumeW), InitiatorAddr: "192.0.2.2"},
		{TargetNodeName: volumeV, InitiatorAddr: "192.0.2.3"}, {TargetNodeName: "other", InitiatorAddr: "192.0.2.4"},
	}
	s := f.through(connections{Caller: f.fault, list: list})
	hosts, err := s.Connected(t.Context(), volumeV)
	require.NoError(t, err)
	assert.Equal(t, []string{"192.0.2.1", "192.0.2.3"}, hosts, "also to the name that SPDK's spdk-csi gives")
	each, err := s.ConnectedEach(t.Context(), []string{volumeW, volumeV, "none"})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"192.0.2.2"}, {"192.0.2.1", "192.0.2.3"}, nil}, each)

	broken := errors.New("broken")
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		f := newFixture(t, tr, "")
		id := f.bdev(t)
		require.NoError(t, admit(t.Context(), f.Service, id, drivertest.Host("n1")))
		s := f.through(connections{Caller: f.fault, err: broken})
		_, err := s.Connected(t.Context(), id)
		require.ErrorIs(t, err, broken)
		_, err = s.ConnectedEach(t.Context(), []string{id})
		require.ErrorIs(t, err, broken)
		if tr == export.TCP {
			hosts, err := s.Connected(t.Context(), volumeV)
			require.NoError(t, err, "a volume that is not exported has no connections")
			assert.Empty(t, hosts)
		}
	}
}

// An iSCSI export created by SPDK's spdk-csi admits every initiator, so the export is kept while
// any initiator is connected.
func TestConnectedLegacyExportIsKept(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id, n1 := f.bdev(t), drivertest.Host("n1")
	require.NoError(t, f.rpc.ISCSICreatePortalGroup(t.Context(), spdkrpc.ISCSICreatePortalGroupParams{Tag: 1, Portals: []spdkrpc.ISCSIPortal{{Host: "127.0.0.1", Port: "3260"}}}))
	require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 1, Initiators: []string{"ANY"}, Netmasks: []string{"ANY"}}))
	drivertest.LegacyExport(t, f.rpc, f.Config, id)
	used := f.through(connections{Caller: f.fault, list: []spdkrpc.ISCSIConnection{{TargetNodeName: export.IQN(id), InitiatorAddr: "192.0.2.1"}}})
	broken := errors.New("broken")
	unknown := f.through(connections{Caller: f.fault, err: broken})
	inspection, err := f.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, inspection.Exports, 1)
	assert.True(t, inspection.Exports[0].Open && inspection.Exports[0].Complete)
	assert.Empty(t, inspection.Exports[0].Hosts)

	require.ErrorIs(t, admit(t.Context(), used, id, n1), export.ErrInUse, "two hosts would write to one volume")
	require.ErrorIs(t, admit(t.Context(), unknown, id, n1), broken)
	require.ErrorIs(t, used.RemoveUnused(t.Context(), id), export.ErrInUse)
	require.ErrorIs(t, used.Withdraw(t.Context(), id, &n1), export.ErrInUse)
	require.ErrorIs(t, unknown.RemoveUnused(t.Context(), id), broken)
	require.ErrorIs(t, unknown.Withdraw(t.Context(), id, &n1), broken)
	there, err := f.Exists(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, there)
	require.NoError(t, f.RemoveUnused(t.Context(), id))
	there, err = f.Exists(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, there)
}

// Inspect does not list exports with names in other formats.
func TestInspectIgnoresForeignExports(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	for _, name := range []string{"x", "ECB6EF11-6851-584F-8AE7-01A5A2789A1E", "{ecb6ef11-6851-584f-8ae7-01a5a2789a1e}"} {
		require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(name)}))
	}
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(volumeV)}))
	all, err := f.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, all.Exports, 1)
	assert.Equal(t, volumeV, all.Exports[0].Volume)
	assert.False(t, all.Exports[0].Complete, "it has no namespace")
	assert.Len(t, all.Exports[0].NotListening, 1)
}
