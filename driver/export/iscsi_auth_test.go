package export_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func withPasswords(t *testing.T, h export.Host, password, targetPassword string) export.Host {
	t.Helper()
	secrets := map[string]string{"chap-user": "user", "chap-password": password}
	if targetPassword != "" {
		secrets["chap-target-user"], secrets["chap-target-password"] = "target", targetPassword
	}
	var err error
	h.Keys, err = hostauth.Read(hostauth.CHAP, secrets, "")
	require.NoError(t, err)
	return h
}

func (f *fixture) authGroups(t *testing.T) map[int32]spdkrpc.ISCSIAuthSecret {
	t.Helper()
	all, err := f.rpc.ISCSIGetAuthGroups(t.Context())
	require.NoError(t, err)
	groups := map[int32]spdkrpc.ISCSIAuthSecret{}
	for _, g := range all {
		groups[g.Tag] = g.Secrets[0]
	}
	return groups
}

func (f *fixture) targetNode(t *testing.T, id string) spdkrpc.ISCSITargetNode {
	t.Helper()
	all, err := f.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	for _, n := range all {
		if n.Name == export.IQN(id) {
			return n
		}
	}
	require.Fail(t, "no target node")
	return spdkrpc.ISCSITargetNode{}
}

// A target node requires CHAP with the passwords of the last admission, and its authentication
// group is removed with it.
func TestInitiatorsMustAuthenticate(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id, second := f.bdev(t), f.bdev(t)
	plain := drivertest.Host("a")
	check := func(password, targetPassword string) {
		t.Helper()
		n := f.targetNode(t, id)
		assert.Equal(t, []bool{false, true, targetPassword != ""}, []bool{n.DisableCHAP, n.RequireCHAP, n.MutualCHAP})
		want := spdkrpc.ISCSIAuthSecret{User: "user", Secret: password}
		if targetPassword != "" {
			want.Muser, want.Msecret = new("target"), &targetPassword
		}
		assert.Equal(t, want, f.authGroups(t)[n.CHAPGroup])
	}
	for range 2 {
		require.NoError(t, admit(t.Context(), f.Service, id, withPasswords(t, plain, "correct-horse-1", "")))
		check("correct-horse-1", "")
		assert.Len(t, f.authGroups(t), 1)
	}
	require.NoError(t, admit(t.Context(), f.Service, second, withPasswords(t, plain, "correct-horse-1", "")))
	assert.Len(t, f.authGroups(t), 2)
	require.NoError(t, admit(t.Context(), f.Service, id, withPasswords(t, plain, "correct-horse-3", "battery-staple-2")))
	check("correct-horse-3", "battery-staple-2")
	assert.Len(t, f.authGroups(t), 2, "the group with the old password is removed")
	require.NoError(t, f.Withdraw(t.Context(), id, &plain))
	assert.Len(t, f.authGroups(t), 1)
	require.NoError(t, f.Withdraw(t.Context(), second, nil))
	assert.Empty(t, f.authGroups(t))
}

// If a host must authenticate, a target node that was created without authentication is replaced,
// which ends its sessions.
func TestTargetNodeWithoutAuthenticationIsReplaced(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id := f.bdev(t)
	h := drivertest.Host("a")
	require.NoError(t, admit(t.Context(), f.Service, id, h))
	deleted := false
	f.fault.Caller = &drivertest.FirstCall{Caller: f.fault.Caller, Method: "iscsi_delete_target_node", After: func(context.Context) { deleted = true }}
	require.NoError(t, admit(t.Context(), f.Service, id, withPasswords(t, h, "correct-horse-1", "")))
	assert.True(t, deleted)
	assert.True(t, f.targetNode(t, id).RequireCHAP)
	require.NoError(t, f.Withdraw(t.Context(), id, &h))
}

// Regardless of which RPC of a call fails, no target node lets initiators log in without CHAP. A
// retry sets the correct passwords, and Withdraw leaves no groups behind.
func TestInterruptedCallsNeverSkipCHAP(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id := f.bdev(t)
	for _, executed := range []bool{false, true} {
		for n := 1; ; n++ {
			h := withPasswords(t, drivertest.Host("a"), "correct-horse-1", "")
			f.fault.FailCall(n, executed, true)
			err := admit(t.Context(), f.Service, id, h)
			failed := f.fault.FailedMethod()
			f.fault.Reset()
			nodes, listErr := f.rpc.ISCSIGetTargetNodes(t.Context())
			require.NoError(t, listErr)
			for _, node := range nodes {
				assert.True(t, node.RequireCHAP, "call %d, %s", n, failed)
			}
			if n%2 == 0 {
				require.NoError(t, admit(t.Context(), f.Service, id, h), "call %d, %s", n, failed)
				assert.Equal(t, "correct-horse-1", f.authGroups(t)[f.targetNode(t, id).CHAPGroup].Secret)
			}
			for m := 1; ; m++ {
				f.fault.FailCall(m, executed, true)
				err := f.Withdraw(t.Context(), id, &h)
				done := f.fault.FailedMethod() == ""
				f.fault.Reset()
				if done {
					require.NoError(t, err)
					break
				}
			}
			assert.Empty(t, f.authGroups(t), "call %d, %s", n, failed)
			if failed == "" {
				require.NoError(t, err)
				assert.Greater(t, n, 3)
				break
			}
		}
	}
}

// If a group with the volume's tag belongs to another volume or was not created by the driver, the
// volume gets another tag.
func TestAuthGroupTagsInUseAreAvoided(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id := f.bdev(t)
	h := withPasswords(t, drivertest.Host("a"), "correct-horse-1", "")
	require.NoError(t, admit(t.Context(), f.Service, id, h))
	tag := f.targetNode(t, id).CHAPGroup
	require.NoError(t, f.Withdraw(t.Context(), id, &h))
	for _, mark := range []string{"spdkgate volume " + f.bdev(t), "somebody"} {
		foreign := []spdkrpc.ISCSIAuthSecret{{User: "user", Secret: "somebody-else's"}, {User: mark, Secret: "x"}}
		require.NoError(t, f.rpc.ISCSICreateAuthGroup(t.Context(), spdkrpc.ISCSICreateAuthGroupParams{Tag: tag, Secrets: foreign}))
		for range 2 {
			require.NoError(t, admit(t.Context(), f.Service, id, h))
			assert.Equal(t, tag+1, f.targetNode(t, id).CHAPGroup)
			assert.Equal(t, "correct-horse-1", f.authGroups(t)[tag+1].Secret)
			assert.Len(t, f.authGroups(t), 2)
		}
		require.NoError(t, f.Withdraw(t.Context(), id, &h))
		assert.Equal(t, "somebody-else's", f.authGroups(t)[tag].Secret)
		assert.Len(t, f.authGroups(t), 1)
		require.NoError(t, f.rpc.ISCSIDeleteAuthGroup(t.Context(), spdkrpc.ISCSIDeleteAuthGroupParams{Tag: tag}))
	}
}
