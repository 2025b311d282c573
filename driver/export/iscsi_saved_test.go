package export_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// savedNodes simulates a proxy whose saved configuration contains iSCSI objects that the target
// lacks.
type savedNodes struct {
	savedObjects
	old bool // whether the proxy lacks the parameter protocol
}

func (s *savedNodes) Call(ctx context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var p struct {
		Name     string
		Tag      int32
		Protocol string
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	remove := func(object string, is func(spdkrpc.ProxyMissingExport) bool) error {
		refusal := &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice, Code: -2, Message: "No such file or directory"}
		if called, err := s.remove(object, refusal, is); called {
			return err
		}
		return s.Caller.Call(ctx, method, params, result)
	}
	switch method {
	case "spdkgate_config_await":
		switch {
		case s.old && p.Protocol != "":
			return &spdkrpc.Error{Method: method, Kind: spdkrpc.InvalidParams, Code: -32602, Message: "unknown parameter"}
		case p.Protocol == "iscsi":
			*result.(*[]spdkrpc.ProxyMissingExport) = slices.Clone(s.missing)
		}
		return nil
	case "iscsi_delete_target_node":
		return remove(p.Name, func(m spdkrpc.ProxyMissingExport) bool { return m.IQN != nil && *m.IQN == p.Name })
	case "iscsi_delete_initiator_group":
		return remove(fmt.Sprint("group ", p.Tag), func(m spdkrpc.ProxyMissingExport) bool { return m.Tag != nil && *m.Tag == p.Tag })
	}
	return s.Caller.Call(ctx, method, params, result)
}

func missingNode(id string, initiators ...string) spdkrpc.ProxyMissingExport {
	return spdkrpc.ProxyMissingExport{Method: "iscsi_create_target_node", IQN: new(export.IQN(id)), Initiators: initiators}
}

// When a volume is withdrawn, its target node is removed from the saved configuration, so that a
// restarted target does not create it again.
func TestWithdrawnTargetNodeIsRemovedFromSavedConfiguration(t *testing.T) {
	n1, n2 := drivertest.Host("n1"), drivertest.Host("n2")
	name := export.IQN(volumeV)
	list := func(m ...spdkrpc.ProxyMissingExport) []spdkrpc.ProxyMissingExport { return m }
	for title, c := range map[string]struct {
		missing    []spdkrpc.ProxyMissingExport
		host       *export.Host
		exported   bool // whether the target exports the volume to n2
		again, old bool
		fails      error
		removed    []string
		err        error
	}{
		"nothing":              {host: &n1},
		"another volume":       {missing: list(missingNode(volumeW, n1.IQN)), host: &n1},
		"the host":             {missing: list(missingNode(volumeV, n1.IQN)), host: &n1, removed: []string{name}},
		"all hosts":            {missing: list(missingNode(volumeV, n2.IQN)), removed: []string{name}},
		"every host":           {missing: list(missingNode(volumeV, "ANY")), host: &n1, removed: []string{name}},
		"another host":         {missing: list(missingNode(volumeV, n2.IQN)), host: &n1},
		"several hosts":        {missing: list(missingNode(volumeV, n1.IQN, n2.IQN)), host: &n1, err: export.ErrForeign},
		"exported to another":  {missing: list(missingNode(volumeV, n1.IQN)), host: &n1, exported: true, err: export.ErrBusy},
		"it stays":             {missing: list(missingNode(volumeV, n1.IQN)), host: &n1, again: true, removed: []string{name, name, name}, err: export.ErrBusy},
		"it cannot be removed": {missing: list(missingNode(volumeV, n1.IQN)), host: &n1, fails: &spdkrpc.Error{Method: "m", Kind: spdkrpc.Denied}, removed: []string{name}, err: spdkrpc.Denied},
		"old proxy":            {host: &n1, old: true, err: spdkrpc.InvalidParams},
	} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t, export.ISCSI, "")
			if c.exported {
				f.malloc(t, volumeV)
				require.NoError(t, admit(t.Context(), f.Service, volumeV, n2))
			}
			saved := &savedNodes{savedObjects{Caller: f.fault, missing: slices.Clone(c.missing), again: c.again, fails: c.fails}, c.old}
			err := f.through(saved).Withdraw(t.Context(), volumeV, c.host)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			if c.old {
				require.ErrorContains(t, err, "upgrade spdk-proxy")
			}
			assert.Equal(t, c.removed, saved.removed)
			there, err := f.Exists(t.Context(), volumeV)
			require.NoError(t, err)
			assert.Equal(t, c.exported, there)
		})
	}
}

// If the saved configuration contains a target node that the target lacks, the restarted target
// creates that node again and needs its initiator group. The group is therefore kept, even though
// no target node on the target refers to it.
func TestInitiatorGroupOfMissingTargetNodeIsKept(t *testing.T) {
	f, n1 := newFixture(t, export.ISCSI, ""), drivertest.Host("n1")
	id := f.bdev(t)
	require.NoError(t, admit(t.Context(), f.Service, id, n1))
	group := f.initiatorGroups(t)[0]
	saved := &savedNodes{savedObjects: savedObjects{Caller: f.fault, missing: []spdkrpc.ProxyMissingExport{missingNode(volumeW, n1.IQN)}}}
	require.NoError(t, f.through(saved).Withdraw(t.Context(), id, &n1))
	require.NoError(t, f.through(saved).RemoveUnusedGroup(t.Context(), export.Group{Tag: group.Tag, Initiator: n1.IQN}))
	assert.Contains(t, f.initiatorGroups(t), group)
	saved.missing = nil
	require.NoError(t, f.through(saved).Withdraw(t.Context(), id, &n1))
	assert.NotContains(t, f.initiatorGroups(t), group)
}

// A volume is not published while the saved configuration contains a target node that admits
// another host, nor to a host whose fence mark exists only in the saved configuration.
func TestMissingTargetNodePreventsPublication(t *testing.T) {
	n1, n2 := drivertest.Host("n1"), drivertest.Host("n2")
	f := newFixture(t, export.ISCSI, "")
	_, err := f.Fence(t.Context(), n2, "n2", false)
	require.NoError(t, err)
	mark := f.initiatorGroups(t)[0]
	_, err = f.Unfence(t.Context(), n2, false)
	require.NoError(t, err)
	missingMark := spdkrpc.ProxyMissingExport{Method: "iscsi_create_initiator_group", Tag: &mark.Tag, Initiators: mark.Initiators}
	for title, c := range map[string]struct {
		missing spdkrpc.ProxyMissingExport
		old     bool
		err     error
	}{
		"another host":   {missing: missingNode(volumeV, n1.IQN), err: export.ErrInUse},
		"the same host":  {missing: missingNode(volumeV, n2.IQN)},
		"every host":     {missing: missingNode(volumeV, "ANY")},
		"another volume": {missing: missingNode(volumeW, n1.IQN)},
		"fenced":         {missing: missingMark, err: export.ErrFenced},
		"old proxy":      {old: true, err: spdkrpc.InvalidParams},
	} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t, export.ISCSI, "")
			f.malloc(t, volumeV)
			saved := &savedNodes{savedObjects{Caller: f.fault, missing: []spdkrpc.ProxyMissingExport{c.missing}}, c.old}
			err := admit(t.Context(), f.through(saved), volumeV, n2)
			there, failed := f.Exists(t.Context(), volumeV)
			require.NoError(t, failed)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				assert.False(t, there)
				return
			}
			require.NoError(t, err)
			assert.True(t, there)
		})
	}
}

// A fenced host is also removed from target nodes that a restarted target would create.
func TestFencedHostIsRemovedFromSavedTargetNodes(t *testing.T) {
	f, n1 := newFixture(t, export.ISCSI, ""), drivertest.Host("n1")
	ctx := t.Context()
	const other = "iqn.2026-11.example:other"
	missing := []spdkrpc.ProxyMissingExport{missingNode(volumeV, n1.IQN), missingNode(volumeW, other), missingNode("both", n1.IQN, other), missingNode("open", "ANY")}
	saved := &savedNodes{savedObjects: savedObjects{Caller: f.fault, missing: slices.Clone(missing)}}
	s := f.through(saved)
	planned, err := s.Fence(ctx, n1, "n1", true)
	require.NoError(t, err)
	assert.Len(t, planned, 4, "the mark, one change and two problems")
	assert.Empty(t, saved.removed, "a dry run changes nothing")
	done, err := s.Fence(ctx, n1, "n1", false)
	require.NoError(t, err)
	assert.Equal(t, planned, done)
	assert.Equal(t, []string{export.IQN(volumeV)}, saved.removed)
	assert.Len(t, saved.missing, 3)
	problems := 0
	for _, f := range done {
		problems += len(f.Problem) / max(1, len(f.Problem))
	}
	assert.Equal(t, 2, problems)

	saved.missing, saved.again = slices.Clone(missing), true
	_, err = s.Fence(ctx, n1, "n1", false)
	require.ErrorIs(t, err, export.ErrBusy)
	saved.again, saved.fails = false, &spdkrpc.Error{Method: "m", Kind: spdkrpc.Denied}
	_, err = s.Fence(ctx, n1, "n1", false)
	require.ErrorIs(t, err, spdkrpc.Denied)
	saved.old = true
	_, err = s.Fence(ctx, n1, "n1", false)
	require.ErrorContains(t, err, "upgrade spdk-proxy")
}

// Unfence removes a fence mark from the saved configuration even if the target has lost the mark.
func TestRemovedISCSIFenceIsRemovedFromSavedConfiguration(t *testing.T) {
	f, n1 := newFixture(t, export.ISCSI, ""), drivertest.Host("n1")
	ctx := t.Context()
	_, err := f.Fence(ctx, n1, "n1", false)
	require.NoError(t, err)
	mark := f.initiatorGroups(t)[0]
	missing := []spdkrpc.ProxyMissingExport{{Method: "iscsi_create_initiator_group", Tag: &mark.Tag, Initiators: mark.Initiators}}
	_, err = f.Unfence(ctx, n1, false)
	require.NoError(t, err)

	saved := &savedNodes{savedObjects: savedObjects{Caller: f.fault, missing: slices.Clone(missing)}}
	_, err = f.through(saved).Unfence(ctx, n1, true)
	require.NoError(t, err)
	assert.Empty(t, saved.removed, "a dry run changes nothing")
	_, err = f.through(saved).Unfence(ctx, n1, false)
	require.NoError(t, err)
	assert.Equal(t, []string{fmt.Sprint("group ", mark.Tag)}, saved.removed)
	assert.Empty(t, saved.missing)

	saved.missing, saved.removed = slices.Clone(missing), nil
	require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(ctx, spdkrpc.ISCSICreateInitiatorGroupParams{Tag: mark.Tag, Initiators: []string{"iqn.2026-11.example:other"}, Netmasks: []string{"ANY"}}))
	_, err = f.through(saved).Unfence(ctx, n1, false)
	require.ErrorIs(t, err, export.ErrBusy, "another group has the mark's tag")
	assert.Empty(t, saved.removed)
}

// If the target restarts while a volume is being published to a host, and loses the host's fence
// mark, the publication is undone.
func TestPublicationWithoutItsMarkIsUndone(t *testing.T) {
	f, n1 := newFixture(t, export.ISCSI, ""), drivertest.Host("n1")
	_, err := f.Fence(t.Context(), n1, "n1", false)
	require.NoError(t, err)
	mark := f.initiatorGroups(t)[0]
	_, err = f.Unfence(t.Context(), n1, false)
	require.NoError(t, err)
	id := f.bdev(t)
	saved := &savedNodes{savedObjects: savedObjects{Caller: f.fault}}
	lost := func(context.Context) {
		saved.missing = []spdkrpc.ProxyMissingExport{{Method: "iscsi_create_initiator_group", Tag: &mark.Tag, Initiators: mark.Initiators}}
	}
	s := f.through(&drivertest.FirstCall{Caller: saved, Method: "iscsi_create_target_node", After: lost})
	require.ErrorIs(t, admit(t.Context(), s, id, n1), export.ErrFenced)
	there, err := f.Exists(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, there)
}

// RemoveUnused removes the target node of a deleted volume from the saved configuration.
func TestUnusedTargetNodeIsRemovedFromSavedConfiguration(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	saved := &savedNodes{savedObjects: savedObjects{Caller: f.fault, missing: []spdkrpc.ProxyMissingExport{missingNode(volumeV, "n1"), missingNode(volumeW, "n1")}}}
	require.NoError(t, f.through(saved).RemoveUnused(t.Context(), volumeV))
	assert.Equal(t, []string{export.IQN(volumeV)}, saved.removed)
}

// The authentication group of a target node that exists only in the saved configuration is kept,
// because a restarted target creates that node again.
func TestAuthGroupOfMissingTargetNodeIsKept(t *testing.T) {
	f, n1 := newFixture(t, export.ISCSI, ""), withPasswords(t, drivertest.Host("n1"), "correct-horse-1", "")
	id := f.bdev(t)
	require.NoError(t, admit(t.Context(), f.Service, id, n1))
	group := f.targetNode(t, id).CHAPGroup
	require.NoError(t, f.rpc.ISCSIDeleteTargetNode(t.Context(), spdkrpc.ISCSIDeleteTargetNodeParams{Name: export.IQN(id)}))
	saved := &savedNodes{savedObjects: savedObjects{Caller: f.fault, missing: []spdkrpc.ProxyMissingExport{missingNode(id, n1.IQN)}}}
	unused := export.UnusedKey{Tag: group}
	listed, err := f.through(saved).UnusedKeys(t.Context())
	require.NoError(t, err)
	assert.Empty(t, listed)
	require.NoError(t, f.through(saved).RemoveUnusedKey(t.Context(), unused))
	assert.Contains(t, f.authGroups(t), group)
	listed, err = f.UnusedKeys(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []export.UnusedKey{unused}, listed)
}
