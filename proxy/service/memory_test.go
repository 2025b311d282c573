package service

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMemoryIsReturnedOnceWhenIdle(t *testing.T) {
	d := idleDetector{working: true}
	for i, c := range []struct {
		allocated uint64
		idle      bool
	}{
		{40 << 20, false}, // start of the process
		{40<<20 + 1000, true},
		{41 << 20, false}, // idle: only probes
		{42 << 20, false},
		{90 << 20, false}, // calls
		{190 << 20, false},
		{191 << 20, true},
		{191 << 20, false},
	} {
		assert.Equal(t, c.idle, d.becomesIdle(d.sinceLast(c.allocated)), "reading %d", i)
	}
}

func TestCollectorRunsLessOftenUnderLoad(t *testing.T) {
	var d idleDetector
	for i, c := range []struct {
		allocated uint64
		percent   int
	}{
		{20 << 20, gcPercent},      // start of the process
		{40 << 20, gcPercent},      // new connections
		{400 << 20, gcPercentBusy}, // thousands of calls per second
		{800 << 20, gcPercentBusy},
		{801 << 20, gcPercent},
	} {
		assert.Equal(t, c.percent, percentFor(d.sinceLast(c.allocated)), "reading %d", i)
	}
}
