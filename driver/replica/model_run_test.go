package replica

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestModelScratch(t *testing.T) {
	faults, _ := strconv.Atoi(os.Getenv("FAULTS"))
	begin := time.Now()
	m := &stepper{rules: productRules(), faults: uint8(faults), errors: os.Getenv("ERRORS") != "", replace: os.Getenv("REPLACE") != ""}
	start := initialWorld()
	if os.Getenv("RUNNING") != "" {
		start = runningWorld()
	}
	r := search(m, start, 100, 3_000_000)
	t.Logf("%d states, %d steps, depth %d, complete %v, %v", r.states, r.steps, r.depth, r.complete, time.Since(begin))
	if r.found != nil {
		t.Error(r.found)
	}
}
