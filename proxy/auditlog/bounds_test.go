package auditlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// handlerFunc implements slog.Handler with a function that handles every record.
type handlerFunc func() error

func (h handlerFunc) Enabled(context.Context, slog.Level) bool  { return true }
func (h handlerFunc) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handlerFunc) WithGroup(string) slog.Handler             { return h }
func (h handlerFunc) Handle(context.Context, slog.Record) error { return h() }

// In a series of failures, only the first failure and the recovery are reported, but the second log
// receives every line that could not be written.
func TestFallbackReportsFailuresOnce(t *testing.T) {
	var second bytes.Buffer
	var broken error
	counted := 0
	log := slog.New(&Fallback{First: handlerFunc(func() error { return broken }), Second: slog.NewTextHandler(&second, nil), Failed: func() { counted++ }})
	write := func(err error, times int) [3]int {
		second.Reset()
		broken = err
		for range times {
			log.Info("line")
		}
		text := second.String()
		return [3]int{strings.Count(text, "msg=line"), strings.Count(text, "cannot be written"), strings.Count(text, "written to its destination again")}
	}
	assert.Equal(t, [3]int{0, 0, 0}, write(nil, 2))
	for range 2 {
		assert.Equal(t, [3]int{3, 1, 0}, write(errors.New("full"), 3))
		assert.Equal(t, [3]int{0, 0, 1}, write(nil, 3))
	}
	assert.Equal(t, 6, counted)
}

// A disabled feed drops its lines, but continues to count them.
func TestDisabledFeedDropsItsLines(t *testing.T) {
	f := &Feed{}
	add := func(n int) {
		for range n {
			f.add(time.Now(), slog.LevelInfo, nil)
		}
	}
	count := func(from uint64) [3]uint64 {
		lines, missed, next, _ := f.From(from)
		return [3]uint64{uint64(len(lines)), missed, next}
	}
	add(3)
	assert.Equal(t, [3]uint64{0, 0, 0}, count(0), "it is off")
	f.SetEnabled(true)
	add(3)
	f.SetEnabled(true)
	assert.Equal(t, [3]uint64{3, 0, 3}, count(0), "it stays on")
	assert.Equal(t, [3]uint64{1, 0, 3}, count(2))
	assert.Equal(t, [3]uint64{0, 0, 3}, count(3))
	f.SetEnabled(false)
	assert.Zero(t, f.size)
	add(1)
	f.SetEnabled(true)
	assert.Equal(t, [3]uint64{0, 3, 3}, count(0))
	add(FeedLines)
	assert.Equal(t, [3]uint64{FeedLines, 3, 3 + FeedLines}, count(0))
	add(1)
	assert.Equal(t, [3]uint64{FeedLines, 4, 4 + FeedLines}, count(0))
	assert.Equal(t, [3]uint64{FeedLines, 0, 4 + FeedLines}, count(4))
	assert.Equal(t, FeedLines*lineBytes, f.size)
}

func TestLongParametersAreReplacedByTheirLength(t *testing.T) {
	for n, whole := range map[int]bool{maxParams - 1: true, maxParams: true, maxParams + 1: false} {
		params := map[string]any{"a": strings.Repeat("x", n-len(`{"a":""}`))}
		logged, is := loggable(params).(loggedParams)
		assert.Equal(t, whole, is, n)
		if whole {
			assert.Len(t, logged, n)
		}
	}
}

func TestEmptyFieldsAreNotLogged(t *testing.T) {
	keys := func(e Entry) (list []string) {
		for _, a := range e.attrs(rpcschema.Default()) {
			list = append(list, a.Key)
		}
		return list
	}
	optional := []string{"translated", "raised", "tenant", "batch", "code", "error", "trace_id", "client_request_id", "credential", "resources"}
	for _, key := range optional {
		assert.NotContains(t, keys(Entry{}), key)
	}
	for key, e := range map[string]Entry{
		"translated": {Translations: []rpcschema.Translation{{From: "a", To: "b"}}}, "tenant": {Tenant: "t"}, "raised": {Tenant: "t", Raised: []string{"x"}},
		"batch": {Batch: "b"}, "code": {Err: errors.New("x")}, "trace_id": {TraceID: "x"}, "client_request_id": {ClientRequestID: "x"}, "credential": {Credential: "x"}, "resources": {Params: map[string]any{}},
	} {
		assert.Contains(t, keys(e), key)
	}
	assert.NotContains(t, keys(Entry{Tenant: "t"}), "raised")
	for _, a := range (&Entry{Took: 1500 * time.Microsecond}).attrs(rpcschema.Default()) {
		if a.Key == "latency_ms" {
			assert.InDelta(t, 1.5, a.Value.Float64(), 0)
		}
	}
}

func TestSourcesAreFormatted(t *testing.T) {
	for want, s := range map[string]Source{
		"192.0.2.1":           {Address: netip.MustParseAddrPort("192.0.2.1:0")},
		"192.0.2.1:1":         {Address: netip.MustParseAddrPort("192.0.2.1:1")},
		"unix:uid=1000,pid=7": {Process: Process{PID: 7, UID: 1000}},
		"[2001:db8::1]:50000": {Address: netip.MustParseAddrPort("[2001:db8::1]:50000")},
	} {
		assert.Equal(t, want, s.String())
	}
}
