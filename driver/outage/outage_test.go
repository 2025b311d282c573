package outage

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A bench is a Log with a manual clock, and the lines that were logged.
type bench struct {
	*Log
	clock time.Time
	lines bytes.Buffer
}

func newBench() *bench {
	b := &bench{clock: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	text := slog.NewTextHandler(&b.lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	b.Log = New(slog.New(text), func() time.Time { return b.clock })
	return b
}

// fail records n failures within one second, and returns the number of failures that the caller
// must log.
func (b *bench) fail(n int, target, kind string) (logged int) {
	for range n {
		if b.Failed(target, kind, "CreateVolume", "target "+target+": "+kind) {
			logged++
		}
	}
	b.clock = b.clock.Add(time.Second)
	return logged
}

func (b *bench) written() (lines []string) {
	for line := range strings.Lines(b.lines.String()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	b.lines.Reset()
	return lines
}

func TestOutageCausesFewLogLines(t *testing.T) {
	b := newBench()
	logged := 0
	for range 90 {
		logged += b.fail(10, "t0", "unreachable")
	}
	b.Answered("t0")
	b.Answered("t0")
	assert.Equal(t, 1, logged)
	assert.Equal(t, []string{
		`level=WARN msg="calls still fail" target=t0 kind=unreachable failures=301 since=2026-11-01T12:00:00Z method=CreateVolume error="target t0: unreachable"`,
		`level=INFO msg="storage server reachable again" target=t0 failures=900 since=2026-11-01T12:00:00Z`,
	}, b.written())
}

func TestIntervalsBetweenLogLinesGrow(t *testing.T) {
	b := newBench()
	for range 24 * 60 * 60 {
		b.fail(1, "t0", "unreachable")
	}
	assert.Equal(t, 99, len(b.written()), "every 15 minutes in the end")
}

func TestFailuresOfOtherKindsAndTargetsAreLogged(t *testing.T) {
	b := newBench()
	for range 3 {
		b.fail(5, "t0", "unreachable")
	}
	assert.Equal(t, 1, b.fail(5, "t0", "credentials refused"))
	assert.Equal(t, 1, b.fail(5, "t1", "unreachable"))
	b.Answered("t1")
	b.Answered("t2")
	assert.Equal(t, []string{`level=INFO msg="storage server reachable again" target=t1 failures=5 since=2026-11-01T12:00:04Z`}, b.written())
	assert.True(t, b.Ongoing("t0"))
	assert.False(t, b.Ongoing("t1"))
	assert.True(t, b.Ongoing(""))
	b.Answered("t0")
	assert.Equal(t, []string{`level=INFO msg="storage server reachable again" target=t0 failures=20 since=2026-11-01T12:00:00Z`}, b.written())
	assert.False(t, b.Ongoing(""))
}

// A target that completes some calls and fails others does not cause a log line for each call.
func TestFlappingTargetIsLoggedRarely(t *testing.T) {
	b := newBench()
	logged := 0
	for range 100 {
		logged += b.fail(1, "t0", "no response")
		b.Answered("t0")
	}
	assert.Equal(t, 3, logged, "at the beginning, after 30 s and after 90 s")
	assert.Len(t, b.written(), 3, "it was reachable again after each of them")
}

func TestSuccessOfAnotherMethodDoesNotEndAnOutage(t *testing.T) {
	b := newBench()
	b.fail(1, "t0", "no response")
	b.Succeeded("t0", "NodeUnpublishVolume")
	assert.True(t, b.Ongoing("t0"))
	b.Succeeded("t0", "CreateVolume")
	assert.False(t, b.Ongoing("t0"))
	require.Len(t, b.written(), 1)
}

// After a long time without failures, the next failure is logged again, and the count is not lost.
func TestOldOutageExpires(t *testing.T) {
	for name, c := range map[string]struct {
		failures int
		answered bool
		after    time.Duration // time since the last failure
		first    int           // number of further failures that the caller logs
		lines    []string
	}{
		"remembered":    {7, false, 30*time.Minute - 1, 0, nil},
		"forgotten":     {2, false, 30 * time.Minute, 1, []string{`level=INFO msg="calls no longer fail" target=t0 kind=unreachable failures=2 since=2026-11-01T12:00:00Z last=2026-11-01T12:00:00Z`}},
		"single":        {1, false, 30 * time.Minute, 1, nil},
		"already ended": {7, true, 30 * time.Minute, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			last := b.clock
			b.fail(c.failures, "t0", "unreachable")
			if c.answered {
				b.Answered("t0")
				require.Len(t, b.written(), 1)
			}
			b.clock = last.Add(c.after)
			assert.Equal(t, c.first == 0, b.Ongoing("t0"))
			assert.Equal(t, c.lines, b.written())
			assert.Equal(t, c.first, b.fail(7, "t0", "unreachable"))
		})
	}
}

// If several outages end at the same time, the log line contains the sum of their failures and
// their earliest start.
func TestEndOfSeveralOutagesIsLoggedOnce(t *testing.T) {
	for range 20 { // the order of the kinds is random
		b := newBench()
		b.fail(1, "t0", "unreachable")
		b.fail(2, "t0", "no response")
		b.fail(4, "t0", "credentials refused")
		b.Answered("t0")
		require.Equal(t, []string{`level=INFO msg="storage server reachable again" target=t0 failures=7 since=2026-11-01T12:00:00Z`}, b.written())
	}
}

func TestNilLogIsAllowed(t *testing.T) {
	var none *Log
	assert.True(t, none.Failed("t0", "unreachable", "CreateVolume", "x"))
	none.Answered("t0")
	none.Succeeded("t0", "CreateVolume")
	assert.False(t, none.Ongoing(""))
}
