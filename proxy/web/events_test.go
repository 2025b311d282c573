package web

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/gate"
)

// An event type invented by the target cannot forge lines in the stream.
func TestEventTypesFromTheTargetAreChecked(t *testing.T) {
	for kind, valid := range map[string]bool{"bdev_register": true, "": false, "a b": false, "x\nid: 1": false, strings.Repeat("a", 65): false} {
		assert.Equal(t, valid, eventType.MatchString(kind), kind)
	}
}

// Before a stream waits or pauses, it writes the pending events exactly once.
func TestEventsAreFlushedBeforeWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, wait := range map[string]func(*Stream){"wait": func(e *Stream) { e.Wait(nil) }, "pause": (*Stream).Pause} {
		w := httptest.NewRecorder()
		e := &Stream{
			server: &Server{Options: Options{Gate: &gate.Gate{Options: gate.Options{Clients: &clientconn.Set{}}}, StreamCheck: time.Hour}},
			visit:  &Visit{W: w, R: httptest.NewRequestWithContext(ctx, "GET", "/events", nil)},
		}
		wait(e)
		assert.False(t, w.Flushed, "%s: there are no events yet", name)
		assert.True(t, e.Send("alert", "7", []byte("{}")))
		assert.True(t, e.Send("gap", "", []byte("[]")))
		for range 2 {
			wait(e)
			assert.Equal(t, "event: alert\nid: 7\ndata: {}\n\nevent: gap\ndata: []\n\n", w.Body.String(), name)
		}
	}
}
