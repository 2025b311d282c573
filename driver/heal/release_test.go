package heal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// A server stops responding exactly while a step waits for the I/O of all replicas. The healer ends
// the server's connections, so the step ends.
func TestStepDoesNotWaitForALostServer(t *testing.T) {
	rebuild := mirror.Status{Members: setA, Rebuilding: setB, Synced: 64, Regions: 64}
	for name, test := range map[string]struct {
		hangs  string
		status mirror.Status
		do     func(f *fake) error
	}{
		"complete":           {"uuid-b", rebuild, nil},
		"retry":              {"uuid-a", mirror.Status{Members: both, Failed: setA}, nil},
		"retry of a rebuild": {"uuid-b", mirror.Status{Members: setA, Rebuilding: setB, Failed: setB}, nil},
		"stop":               {"uuid-b", rebuild, func(f *fake) error { return f.Unstage(t.Context(), testVolume) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := staged(t)
			f.Grace, f.status = 0, test.status
			f.hangs, f.released = test.hangs, make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				if test.do != nil {
					ended <- test.do(f)
					return
				}
				f.volumes["volume"].tryRound(t.Context())
				ended <- nil
			}()
			select {
			case err := <-ended:
				require.NoError(t, err)
			case <-time.After(50 * time.Second):
				t.Fatal("the step does not end")
			}
			assert.Equal(t, "release "+test.hangs, f.after()[0])
		})
	}
}

// The connections of the only current replica, and of a server that may still respond, remain.
func TestNeededConnectionsAreNotEnded(t *testing.T) {
	assert.Equal(t, replica.Set(0), dispensable(mirror.Status{Members: setA, Missing: setB}))
	assert.Equal(t, replica.Set(0), dispensable(mirror.Status{Members: both, Failed: both}))
	f := staged(t)
	f.Grace = 5 * time.Second
	v := f.volumes["volume"]
	f.down["uuid-b"] = true
	v.releaseLost(t.Context(), both)
	assert.Empty(t, f.after(), "it may return")
	f.clock = f.clock.Add(5 * time.Second)
	v.releaseLost(t.Context(), setA)
	assert.Empty(t, f.after(), "the replica is needed")
	f.down["uuid-a"] = true
	v.releaseLost(t.Context(), both)
	assert.Empty(t, f.after(), "no server responds")
	f.down["uuid-a"] = false
	v.releaseLost(t.Context(), both)
	assert.Equal(t, []string{"release uuid-b"}, f.after())
}

// After the connections of a replica were ended, the other server is lost before the replica is
// dropped. The healer connects the replica again, and then drops the other one.
func TestMemberWithoutConnectionsIsConnectedAgain(t *testing.T) {
	f := staged(t)
	f.down["uuid-a"] = true
	f.live["uuid-b"], f.down["uuid-b"] = false, true
	require.Empty(t, f.round(t, 0))
	require.Equal(t, []string{"connect uuid-b"}, f.round(t, 5*time.Second))
	assert.Contains(t, f.state(t).Problem, "server b")
	f.down["uuid-b"] = false
	require.Equal(t, []string{"connect uuid-b"}, f.round(t, time.Minute))
	assert.Equal(t, []string{"drop", "release uuid-a"}, f.round(t, time.Second))
}
