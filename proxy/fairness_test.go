package proxy

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/policy"
)

// newFairBench creates a bench with volumes v and v0 to v16. Its users, admin and other, have the
// same password.
func newFairBench(t *testing.T, release string, limits config.Limits) *bench {
	b := newBench(t, release, withJournal(t), func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: "other", PasswordHash: c.Users[0].PasswordHash, Roles: []string{policy.Admin}})
		c.Limits.UsersInFlight = limits.UsersInFlight
	})
	b.exported(t, true)
	for i := range 17 {
		b.call(t, "bdev_lvol_create", fmt.Sprintf(`{"lvs_name":"lvs0","lvol_name":"v%d","size_in_mib":8}`, i))
	}
	return b
}

// awaitAtBarriers starts 16 snapshots with barriers for a user, and waits until n of them have
// reached their barriers. open opens these barriers.
func (b *bench) awaitAtBarriers(t *testing.T, user string, n int) (open func()) {
	var calls []string
	for i := range 16 {
		calls = append(calls, rpcCall(safeSnapshotMethod, fmt.Sprintf(`{"snapshots":[{"lvol_name":"lvs0/v%d","snapshot_name":"s%d"}],"barrier":{"id":"barrier-%d","wait_ms":5000}}`, i, i, i)))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.postTogether(user, adminPassword, calls)
	}()
	arrived := make(chan string, 16)
	var awaits sync.WaitGroup
	for i := range 16 {
		awaits.Go(func() {
			id := fmt.Sprint("barrier-", i)
			if b.of(user, barrierCall(id, "await")).StatusCode == http.StatusOK {
				arrived <- id
			}
		})
	}
	t.Cleanup(func() {
		// the other snapshots reach their barriers as soon as they get a slot
		for ended := false; !ended; {
			for i := range 16 {
				b.of(user, barrierCall(fmt.Sprint("barrier-", i), "give-up"))
			}
			select {
			case <-done:
				ended = true
			case <-time.After(10 * time.Millisecond):
			}
		}
		awaits.Wait()
	})
	ids := make([]string, n)
	for i := range ids {
		ids[i] = <-arrived
	}
	return func() {
		assert.Empty(t, arrived, "more than %d snapshots wait at barriers", n)
		for _, id := range ids {
			assert.Equal(t, http.StatusOK, b.of(user, barrierCall(id, "open")).StatusCode, "the snapshot no longer waits")
		}
	}
}

// Snapshots of one user that wait at barriers do not block another user's deletions and snapshots,
// with or without barriers.
func TestBarriersDoNotDelayOtherUsers(t *testing.T) {
	b := newFairBench(t, "v26.05", config.Limits{})
	open := b.awaitAtBarriers(t, "admin", 8)
	for _, call := range []string{
		rpcCall(safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"other"}]}`),
		rpcCall(safeDeleteMethod, `{"name":"lvs0/other"}`),
		rpcCall(deleteMethod, `{"name":"lvs0/v16"}`),
	} {
		g := b.of("other", call)
		assert.Equal(t, http.StatusOK, g.StatusCode, g.body)
		assert.Contains(t, g.body, `"result"`)
	}
	late := b.of("other", rpcCall(safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v","snapshot_name":"late"}],"barrier":{"id":"barrier-other","wait_ms":1}}`))
	assert.Contains(t, late.body, "not opened in time")
	open()
}

// A snapshot that waits at a barrier counts as a running call of its user.
func TestBarriersCountAsRunningCalls(t *testing.T) {
	b := newFairBench(t, "v26.05", config.Limits{UsersInFlight: map[string]int{"admin": 2}})
	open := b.awaitAtBarriers(t, "admin", 2)
	assert.Equal(t, 2, b.proxy.target.Loads()["admin"].InFlight)
	open()
}

// A user who is limited to one call at a time can delete a volume: the deletion counts as one call,
// although the proxy makes several calls for it.
func TestDeletionCountsAsOneCall(t *testing.T) {
	b := newFairBench(t, "v26.05", config.Limits{UsersInFlight: map[string]int{"admin": 1}})
	b.call(t, snapshotMethod, `{"lvol_name":"lvs0/v0","snapshot_name":"s"}`)
	b.call(t, decoupleMethod, `{"name":"lvs0/v0"}`)
	b.call(t, deleteMethod, `{"name":"lvs0/v0"}`)
	b.call(t, safeDeleteMethod, `{"name":"lvs0/s"}`)
}

// Before v24.09, volumes cannot be listed during a deletion. A group snapshot that waits at a
// barrier deletes nothing, so it does not prevent listings.
func TestBarriersDoNotPreventListings(t *testing.T) {
	b := newFairBench(t, "v24.01", config.Limits{})
	taken := make(chan got, 1)
	go func() {
		taken <- b.post(rpcCall(safeSnapshotMethod, `{"snapshots":[{"lvol_name":"lvs0/v0","snapshot_name":"s0"},{"lvol_name":"lvs0/v1","snapshot_name":"s1"}],"barrier":{"id":"barrier-1","wait_ms":5000}}`))
	}()
	require.Equal(t, http.StatusOK, b.post(barrierCall("barrier-1", "await")).StatusCode)
	g := b.of("other", rpcCall("bdev_lvol_get_lvols", `{}`))
	assert.Equal(t, http.StatusOK, g.StatusCode, g.body)
	require.Equal(t, http.StatusOK, b.post(barrierCall("barrier-1", "open")).StatusCode)
	g = <-taken
	assert.Equal(t, http.StatusOK, g.StatusCode, g.body)
}
