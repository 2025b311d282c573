package execute

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/quiesce"
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

// If a few owners occupy all slots, the call of another owner waits until its deadline, and gets
// the next free slot before their waiting calls.
func TestOwnersWithoutAReadOfChangesComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := newChangesReader().slots
		ctx, cancel := context.WithCancel(t.Context())
		var ends []func()
		for _, owner := range []string{"a", "a", "b", "c"} {
			end, err := slots.Acquire(ctx, owner)
			require.NoError(t, err)
			ends = append(ends, end)
		}
		var granted []string
		for _, owner := range []string{"a", "a", "b", "d"} {
			go func() {
				if _, err := slots.Acquire(ctx, owner); err == nil {
					granted = append(granted, owner)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute)
		ends[0]() // a still has one read, as do b and c
		synctest.Wait()
		assert.Equal(t, []string{"d"}, granted)
		cancel()
		synctest.Wait()
	})
}

// A call that waits for a slot until its deadline is refused with advice to retry. It is not
// reported as abandoned by its client.
func TestReadsOfChangesWithoutASlotAreRefusedAsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		method, _ := rpcschema.Default().Method("spdkgate_lvol_changes")
		e := &Executor{changes: newChangesReader()}
		for _, owner := range []string{"a", "a", "b", "c"} {
			_, err := e.changes.slots.Acquire(t.Context(), owner)
			require.NoError(t, err)
		}
		began := time.Now()
		_, err := e.ReadChanges(t.Context(), Command{
			User: "d", Method: method, Params: map[string]any{"snapshot": "lvs0/s"},
			Timeout: func(string) time.Duration { return 10 * time.Minute },
		})
		var busy *quiesce.BusyError
		require.ErrorAs(t, err, &busy)
		assert.Equal(t, errChangesBusy, busy)
		assert.Equal(t, 10*time.Minute, time.Since(began))
	})
}
