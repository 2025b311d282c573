package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

// Malformed and invalid ids are ignored. The rules for traceparent are those of W3C Trace Context.
func TestOnlyValidTraceIDsAreUsed(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	valid := gate.Trace{TraceID: id}
	for name, c := range map[string]struct {
		header, value string
		want          gate.Trace
	}{
		"traceparent":              {"Traceparent", "00-" + id + "-" + span + "-01", valid},
		"later version":            {"Traceparent", "01-" + id + "-" + span + "-01-more", valid},
		"more fields in version 0": {"Traceparent", "00-" + id + "-" + span + "-01-more", gate.Trace{}},
		"invalid version":          {"Traceparent", "ff-" + id + "-" + span + "-01", gate.Trace{}},
		"zeros":                    {"Traceparent", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", gate.Trace{}},
		"upper case":               {"Traceparent", "00-" + strings.ToUpper(id) + "-" + span + "-01", gate.Trace{}},
		"too short":                {"Traceparent", "00-" + id[1:] + "-" + span + "-01", gate.Trace{}},
		"too long":                 {"Traceparent", "00-" + id + "0-" + span + "-01", gate.Trace{}},
		"request id":               {"X-Request-Id", strings.Repeat("r", 128), gate.Trace{RequestID: strings.Repeat("r", 128)}},
		"long request id":          {"X-Request-Id", strings.Repeat("r", 129), gate.Trace{}},
		"request id with a space":  {"X-Request-Id", "a b", gate.Trace{}},
	} {
		assert.Equal(t, c.want, traceOf(http.Header{c.header: {c.value}}), name)
	}
}
