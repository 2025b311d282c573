package drivertest

import "testing"

// Serial skips a test under the race detector, with which it takes minutes: its calls follow each
// other, so that there are no races to find. `make test` runs these tests without it.
func Serial(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("takes minutes with the race detector, and has no concurrent calls: run it without -race, as make test does")
	}
}
