package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

// The console's pages use Retry-After to decide when to repeat a request. The value is in seconds;
// 0 would mean immediately.
func TestConsoleErrorsSayWhenToRetry(t *testing.T) {
	for name, c := range map[string]struct {
		answer     gate.Answer
		retryAfter []string
		connection []string
	}{
		"no time to retry":       {gate.Answer{Status: http.StatusForbidden}, nil, nil},
		"seconds":                {gate.Answer{Status: http.StatusTooManyRequests, RetryAfter: 7 * time.Second}, []string{"7"}, nil},
		"a fraction of a second": {gate.Answer{Status: http.StatusTooManyRequests, RetryAfter: time.Nanosecond}, []string{"1"}, nil},
		"no longer serving":      {gate.Answer{Status: http.StatusServiceUnavailable, RetryAfter: time.Second}, []string{"1"}, []string{"close"}},
		"body too slow":          {gate.Answer{Status: http.StatusRequestTimeout}, nil, []string{"close"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			WriteMessage(w, c.answer, "failed")
			assert.Equal(t, c.answer.Status, w.Code)
			assert.Equal(t, c.retryAfter, w.Header().Values("Retry-After"))
			assert.Equal(t, c.connection, w.Header().Values("Connection"))
			assert.JSONEq(t, `{"message":"failed"}`, w.Body.String())
		})
	}
}
