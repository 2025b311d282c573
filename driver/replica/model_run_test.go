package replica

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	faults = flag.Int("faults", 3, "failures and publications of TestModelWithMoreFailuresViolatesNoInvariant")
	states = flag.Int("states", 6_000_000, "states after which TestModelWithMoreFailuresViolatesNoInvariant stops")
)

// No state that failures can lead to violates an invariant. The search is exhaustive, with any
// number of writes, rebuilds and starts between failures.
func TestModelViolatesNoInvariant(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	t.Parallel()
	for _, test := range []struct {
		name    string
		initial world
		model   stepper
	}{
		{"creation, and two failures or publications", initialWorld(), stepper{faults: 2}},
		{"a volume in use, and two failures or publications", runningWorld(), stepper{faults: 2, errors: true}},
		{"a third replica", runningWorld(), stepper{faults: 1, replace: true}},
		{"an administrator keeps a replica of a degraded volume", degradedWorld(), stepper{faults: 2, keep: true, only: []kind{published, unpublished}}},
		{"an administrator keeps a replica after the loss of a node", abandonedWorld(), stepper{faults: 2, keep: true, only: []kind{published, unpublished}}},
		{"an administrator keeps one of two accused replicas", stoppedWorld(setAB, 0, Superblock{InSync: setA}, Superblock{InSync: setB}), stepper{faults: 3, keep: true, window: true, only: []kind{published, unpublished}}},
		{"a witness restored from a backup", restorableWorld(), restoredModel()},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.model.rules, test.model.reduced = productRules(), true
			r := search(&test.model, test.initial, 100, 10_000_000)
			t.Logf("%d states, %d steps, depth %d", r.states, r.steps, r.depth)
			assert.True(t, r.complete, "the search is not complete")
			if r.found != nil {
				t.Error(r.found)
			}
		})
	}
}

// TestModelWithMoreFailuresViolatesNoInvariant allows more failures, but limits the number of
// states. Options: go test ./driver/replica -run TestModelWithMoreFailuresViolatesNoInvariant -v
// -args -faults 4 -states 20000000.
func TestModelWithMoreFailuresViolatesNoInvariant(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	for name, model := range map[string]stepper{
		"two replicas":    {faults: uint8(*faults), errors: true},
		"a third replica": {faults: uint8(*faults), replace: true},
	} {
		t.Run(name, func(t *testing.T) {
			model.rules, model.reduced = productRules(), true
			r := search(&model, runningWorld(), 1000, *states)
			t.Logf("%d states, %d steps, depth %d, complete: %v", r.states, r.steps, r.depth, r.complete)
			if r.found != nil {
				t.Error(r.found)
			}
		})
	}
}

// If a live server returns an error, md lets the other writes in flight return. If the node then
// loses power before the witness has changed, a write is lost.
func TestReturnedWriteIsLostAfterTwoFailures(t *testing.T) {
	m := &stepper{rules: productRules(), errors: true, window: true}
	m.rules.errorsPass, m.rules.inFlightReturns = true, true
	m.faults = 1
	r := search(m, runningWorld(), 100, 1_000_000)
	assert.True(t, r.complete && r.found == nil, "one failure suffices: %v", r.found)
	m.faults, m.only = 2, []kind{errorReturned, powerLost}
	r = search(m, runningWorld(), 100, 1_000_000)
	if assert.NotNil(t, r.found) {
		assert.Equal(t, startLacking, r.found.violation)
		t.Log(r.found)
	}
}
