package service

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMemoryGoesBackOnceAtRest(t *testing.T) {
	w := idleDetector{working: true}
	for i, c := range []struct {
		allocated uint64
		rests     bool
	}{
		{40 << 20, false}, // started
		{40<<20 + 1000, true},
		{41 << 20, false}, // at rest, probed
		{42 << 20, false},
		{90 << 20, false}, // working
		{190 << 20, false},
		{191 << 20, true},
		{191 << 20, false},
	} {
		assert.Equal(t, c.rests, w.becomesIdle(w.more(c.allocated)), "look %d", i)
	}
}

func TestTheCollectorRunsLessOftenUnderLoad(t *testing.T) {
	var w idleDetector
	for i, c := range []struct {
		allocated uint64
		percent   int
	}{
		{20 << 20, gcPercent},      // started
		{40 << 20, gcPercent},      // connections are made
		{400 << 20, gcPercentBusy}, // thousands of calls a second
		{800 << 20, gcPercentBusy},
		{801 << 20, gcPercent},
	} {
		assert.Equal(t, c.percent, percentFor(w.more(c.allocated)), "look %d", i)
	}
}
