package execute

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Snapshots that wait for their clients at barriers do not use the slots of other operations, even
// if many users have such snapshots.
func TestBarriersDoNotUseSlotsOfOtherOperations(t *testing.T) {
	enter := enterOperation(target.New(target.Config{Socket: "unused", QueueWait: time.Second}))
	waiting := 0
	for i := range 2 * maxBarriers {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if leave, err := enter(ctx, fmt.Sprint("user", i), true); err == nil {
			t.Cleanup(leave)
			waiting++
		}
		cancel()
	}
	require.Equal(t, maxBarriers, waiting)
	leave, err := enter(t.Context(), "other", false)
	require.NoError(t, err)
	leave()
}

// The users of one tenant together cannot keep others from listing changes.
func TestUsersOfATenantShareTheirReadsOfChanges(t *testing.T) {
	method, _ := rpcschema.Default().Method("spdkgate_lvol_changes")
	e := &Executor{changes: newChangesReader(), Options: Options{Contain: func(string, func()) {}}} // no read ends
	reads := func(user string, tenant *tenancy.Scope) bool {
		_, err := e.ReadChanges(t.Context(), Command{
			User: user, Tenant: tenant, Method: method, Params: map[string]any{"snapshot": "lvs0/s"},
			Timeout: func(string) time.Duration { return 10 * time.Millisecond },
		})
		return errors.Is(err, errDeviceSlow)
	}
	a, b := &tenancy.Scope{Tenant: tenancy.Tenant{Name: "a"}}, &tenancy.Scope{Tenant: tenancy.Tenant{Name: "b"}}
	running := 0
	for i := range 3 * maxChanges {
		if reads(fmt.Sprint("a", i), a) {
			running++
		}
	}
	assert.Equal(t, maxChangesOfAnOwner, running)
	assert.True(t, reads("b", b))
	assert.True(t, reads("admin", nil))
}
