package drivertest

import "testing"

// Serial skips a test under the race detector, where it would take minutes: its calls are
// sequential, so there are no races to find. `make test` runs these tests without it.
func Serial(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("takes minutes with the race detector, and has no concurrent calls: run it without -race, as make test does")
	}
}
