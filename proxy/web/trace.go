package web

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

var (
	requestIDs = regexp.MustCompile(`^[!-~]{1,128}$`)
	// Later versions of traceparent may contain further fields after the flags.
	traceparents = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)
	noTraceID    = strings.Repeat("0", 32)
)

// traceOf returns the ids in a request: X-Request-Id, and the trace id in traceparent from W3C
// Trace Context. It ignores malformed values, as W3C Trace Context requires.
func traceOf(h http.Header) (t gate.Trace) {
	if id := h.Get("X-Request-Id"); requestIDs.MatchString(id) {
		t.RequestID = id
	}
	if m := traceparents.FindStringSubmatch(h.Get("Traceparent")); m != nil && m[1] != "ff" && m[2] != noTraceID && (m[1] != "00" || m[3] == "") {
		t.TraceID = m[2]
	}
	return t
}
