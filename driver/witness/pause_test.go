package witness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The pause between attempts doubles from 50 ms up to 5 s, even after very many attempts.
func TestPauseDoublesUpToFiveSeconds(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 6: 3200 * time.Millisecond, 7: 5 * time.Second, 10: 5 * time.Second, 1000: 5 * time.Second,
	} {
		assert.Equal(t, want, pauseAfter(attempt), attempt)
	}
}
