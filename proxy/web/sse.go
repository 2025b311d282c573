package web

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

const (
	// streamCheckInterval is the interval at which a stream checks that its user is still
	// authorized, and that its client is still connected.
	streamCheckInterval = 5 * time.Second
	// streamPause is the time between two parts of a stream, so that events are sent together.
	streamPause = 200 * time.Millisecond
	// streamPart is the number of bytes of events that are sent together.
	streamPart = 64 << 10
)

const eventStreamType = "text/event-stream"

// A Stream sends server-sent events to one client.
type Stream struct {
	server *Server
	visit  *Visit
	// may reports whether a user is authorized for this stream.
	may func(current *gate.Settings, user string) bool
	out strings.Builder // events that have not been written yet
}

// OpenStream counts a stream that a user has opened. It is for pages that are streams.
func (s *Server) OpenStream(r *gate.Request) (any, error) { return s.streams.open(r.User) }

// Stream returns a page with an endless stream of events as its response. run sends the events
// until Wait returns false. may reports whether a user is still authorized for the stream. The
// page's method must return the result of OpenStream.
func (s *Server) Stream(p Page, may func(current *gate.Settings, user string) bool, run func(e *Stream)) http.HandlerFunc {
	p.Stream = true
	p.Write = func(v *Visit, leave any) {
		defer leave.(func())()
		h := v.W.Header()
		h.Set("Content-Type", eventStreamType)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // for nginx as a reverse proxy
		e := &Stream{server: s, visit: v, may: may}
		// tells the client immediately that it is connected
		if e.write(": stream\n\n") && v.R.Method != http.MethodHead {
			run(e)
		}
	}
	return s.Page(p)
}

// Visit returns the request that opened the stream.
func (e *Stream) Visit() *Visit { return e.visit }

// Send queues an event, which is sent by the next call of Wait or Pause at the latest. data must
// not contain a line break; id may be "". If the client has disconnected, Send returns false.
func (e *Stream) Send(name, id string, data []byte) bool {
	e.out.WriteString("event: " + name + "\n")
	if id != "" {
		e.out.WriteString("id: " + id + "\n")
	}
	e.out.WriteString("data: ")
	e.out.Write(data)
	e.out.WriteString("\n\n")
	return e.out.Len() < streamPart || e.flush()
}

// flush writes the events that have not been written yet.
func (e *Stream) flush() bool {
	if e.out.Len() == 0 {
		return true
	}
	defer e.out.Reset()
	return e.write(e.out.String())
}

// write writes part of the stream. If the client has disconnected, it returns false.
func (e *Stream) write(text string) bool {
	e.server.Gate.Clients.NextPart(connOf(e.visit.R))
	if _, err := io.WriteString(e.visit.W, text); err != nil {
		return false
	}
	return http.NewResponseController(e.visit.W).Flush() == nil
}

// Wait blocks until more signals new events. It returns false if the stream must end because the
// client has disconnected, the server is stopping, or the user is no longer authorized.
func (e *Stream) Wait(more <-chan struct{}) bool {
	if !e.flush() {
		return false
	}
	check := time.NewTimer(e.server.StreamCheck)
	defer check.Stop()
	for {
		select {
		case <-more:
			return e.mayContinue()
		case <-check.C:
			if !e.mayContinue() || !e.write(": alive\n\n") {
				return false
			}
			check.Reset(e.server.StreamCheck)
		case <-e.visit.R.Context().Done():
			return false
		case <-e.server.Stopping:
			return false
		}
	}
}

// Pause waits until the next part may be sent.
func (e *Stream) Pause() {
	if !e.flush() {
		return // Wait also detects this
	}
	select {
	case <-time.After(streamPause):
	case <-e.visit.R.Context().Done():
	case <-e.server.Stopping:
	}
}

// mayContinue reports whether the request's credentials still authenticate the same user, and the
// user is still authorized for the stream. This check does not count as a use of the session.
func (e *Stream) mayContinue() bool {
	user := e.visit.X.Sender.User
	v := &Visit{W: e.visit.W, R: e.visit.R, X: gate.NewExchange(e.visit.X.Source), current: e.server.Gate.Settings()}
	err := e.server.authenticate(v)
	return err == nil && v.X.Sender.User == user && e.may(v.current, user)
}

// LastEventID returns the number of the last event that a reconnecting client has seen, provided
// that the event came from this process.
func LastEventID(r *http.Request, process string) (number uint64, ok bool) {
	text, ok := strings.CutPrefix(r.Header.Get("Last-Event-ID"), process+"-")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, err == nil
}
