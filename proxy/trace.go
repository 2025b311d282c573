package proxy

import (
	"net/http"
	"regexp"
	"strings"
)

// A trace is how a client names its request, so that its log and the proxy's can be put together. It is the client's
// claim: the proxy's own id is unique, and this one need not be.
type trace struct {
	requestID string // X-Request-Id
	traceID   string // of traceparent
}

var (
	requestIDs = regexp.MustCompile(`^[!-~]{1,128}$`)
	// Later versions of traceparent may have more after the flags.
	traceparents = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)
	noTraceID    = strings.Repeat("0", 32)
)

// traceOf reads a request's names for itself: X-Request-Id, and traceparent of W3C Trace Context. What has another form is
// ignored, as the latter requires.
func traceOf(h http.Header) (t trace) {
	if id := h.Get("X-Request-Id"); requestIDs.MatchString(id) {
		t.requestID = id
	}
	if m := traceparents.FindStringSubmatch(h.Get("Traceparent")); m != nil && m[1] != "ff" && m[2] != noTraceID && (m[1] != "00" || m[3] == "") {
		t.traceID = m[2]
	}
	return t
}
