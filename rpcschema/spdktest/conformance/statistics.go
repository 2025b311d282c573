package conformance

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// testNotifications checks that adding and removing bdevs causes notifications with increasing
// numbers.
func testNotifications(s *suite) {
	var before, after []spdkrpc.NotifyEvent
	s.get(&before, "notify_get_notifications", nil)
	name := s.malloc("noted", 1)
	s.ok("bdev_malloc_delete", P{"name": name})
	next := uint64(0)
	if n := len(before); n > 0 {
		next = before[n-1].ID + 1
	}
	s.get(&after, "notify_get_notifications", P{"id": next})
	require.Len(s, after, 2)
	assert.Equal(s, spdkrpc.NotifyEvent{Type: "bdev_register", Ctx: name, ID: next}, after[0])
	assert.Equal(s, spdkrpc.NotifyEvent{Type: "bdev_unregister", Ctx: name, ID: next + 1}, after[1])
	s.get(&after, "notify_get_notifications", P{"id": next, "max": 1})
	assert.Len(s, after, 1)
	s.get(&after, "notify_get_notifications", P{"id": next + 2})
	assert.Empty(s, after)
}

// testStatistics checks what a target reports about its cores, threads and buffers.
func testStatistics(s *suite) {
	var reactors spdkrpc.FrameworkReactors
	s.get(&reactors, "framework_get_reactors", nil)
	require.NotEmpty(s, reactors.Reactors)
	assert.NotZero(s, reactors.TickRate)
	assert.NotZero(s, reactors.Reactors[0].Busy+reactors.Reactors[0].Idle)
	running := map[string]bool{}
	for _, r := range reactors.Reactors {
		for _, t := range r.LwThreads {
			running[t.Name] = true
		}
	}
	assert.Contains(s, running, "app_thread")

	var threads spdkrpc.ThreadStatsList
	s.get(&threads, "thread_get_stats", nil)
	for _, t := range threads.Threads {
		assert.Contains(s, running, t.Name)
	}
	var pollers spdkrpc.ThreadPollersList
	s.get(&pollers, "thread_get_pollers", nil)
	assert.Len(s, pollers.Threads, len(threads.Threads))
	for _, method := range []string{"framework_get_reactors", "thread_get_stats", "thread_get_pollers"} {
		s.fails(invalidParams, method, P{"no_such_parameter": 1})
	}
	if s.before("v24.01") {
		return
	}
	var buffers []spdkrpc.IobufModuleStats
	s.get(&buffers, "iobuf_get_stats", nil)
	modules := map[string]bool{}
	for _, m := range buffers {
		modules[m.Module] = true
	}
	assert.Contains(s, modules, "bdev")
}
