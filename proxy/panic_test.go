package proxy

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/config"
)

// A panickingLog panics at each line with a certain message.
type panickingLog struct {
	slog.Handler
	at string
}

func (l *panickingLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == l.at {
		panic("bug in " + l.at)
	}
	return l.Handler.Handle(ctx, r)
}

// A panic outside the stages of a call is logged at the default level, counted in the metrics, and
// reported to the client.
func TestPanicsAreReported(t *testing.T) {
	b := newBench(t, "v26.05")
	log := &panickingLog{config.NewLogger(b.log, config.Log{Format: "json", Level: slog.LevelInfo}).Handler(), "call"}
	b.proxy.gate.Log, b.proxy.gate.AuditLog = slog.New(log), auditlog.New(slog.New(log), b.proxy.gate.Schema)
	g := b.post(createMalloc)
	assert.Equal(t, http.StatusInternalServerError, g.StatusCode)
	assert.Equal(t, -32603, g.code(t))
	lines := b.log.Lines(t, "panic")
	require.Len(t, lines, 1)
	assert.Equal(t, "ERROR", lines[0]["level"])
	assert.Equal(t, "bug in call", lines[0]["panic"])
	assert.Equal(t, g.Header.Get("X-Request-Id"), lines[0]["request_id"])
	assert.Contains(t, lines[0]["stack"], "panic_test.go")

	log.at = ""
	assert.Equal(t, http.StatusOK, b.post(`{"id":1,"method":"bdev_get_bdevs"}`).StatusCode)
	assert.Contains(t, b.scrape(), "\nspdk_proxy_panics_total 1\n")
	drained, _ := b.proxy.gate.Drain()
	<-drained // returns only if no call counts as in flight
}

// If a panic interrupts a response, the connection is closed, so that the response does not look
// complete.
func TestPanicDuringAResponseClosesTheConnection(t *testing.T) {
	b := newBench(t, "v26.05")
	server := httptest.NewUnstartedServer(b.proxy.web.AnswerPanics(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
		panic("bug")
	})))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.Start()
	t.Cleanup(server.Close)
	resp, err := server.Client().Get(server.URL)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	require.Error(t, err)
	assert.Len(t, b.log.Lines(t, "panic"), 1)
	_, err = server.Client().Get(server.URL + "/abort")
	require.Error(t, err)
	assert.Len(t, b.log.Lines(t, "panic"), 1, "http.ErrAbortHandler is not a panic")
}

func TestPanicsOutsideRequestsAreContained(t *testing.T) {
	b := newBench(t, "v26.05")
	b.proxy.gate.Contain("late reply", func() { panic("bug") })
	assert.Len(t, b.log.Lines(t, "panic"), 1)
}
