package drivertest

import "testing"

// Serial skips a test under the race detector, where it would take minutes. The test's calls are
// sequential, so there are no races to find. `make test` also runs such tests without the race
// detector.
func Serial(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("takes minutes with the race detector, and has no concurrent calls: run it without -race, as make test does")
	}
}
