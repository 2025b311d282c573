package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// streamCheckInterval is how often a stream checks that its user may still have it, and that its
	// client is still there.
	streamCheckInterval = 5 * time.Second
	// streamPause is the time between two parts of a stream, so that many events go out together.
	streamPause = 200 * time.Millisecond
	// streamPart is how many bytes of events go out together.
	streamPart = 64 << 10
)

// An eventStream sends server-sent events to one client.
type eventStream struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	x      *exchange
	// may reports whether a user may have this stream.
	may func(now *settings, user string) bool
	out strings.Builder // events that have not been written yet
}

// serveStream answers a GET with an endless stream of events, which run sends until wait returns
// false. The request itself is answered and logged like a call of method. A stream does not keep a
// stopping server from stopping.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request, method string, may func(now *settings, user string) bool, run func(e *eventStream)) {
	x, now := newExchange(r, s.balancers), s.settings.Load()
	w.Header().Set("X-Request-Id", x.id)
	err := s.enter(now, x, w, r)
	if x.entered {
		s.inFlight.leave()
	}
	if err == nil && !may(now, x.sender.user) {
		err = errDenied
	}
	leave := func() {}
	if err == nil {
		leave, err = s.streams.open(x.sender.user)
	}
	answered := s.noteConsole(x, method, nil, err)
	if err != nil {
		writeMessage(w, answered, answered.err.Message)
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", eventStreamType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // of a reverse proxy
	e := &eventStream{server: s, w: w, r: r, x: x, may: may}
	if e.write(": stream\n\n") && r.Method != http.MethodHead { // so that the client knows at once that it is connected
		run(e)
	}
}

// send sends an event, at the latest when the stream waits. data must not contain a line break; id
// may be "". It reports false if the client has disconnected.
func (e *eventStream) send(name, id string, data []byte) bool {
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
func (e *eventStream) flush() bool {
	if e.out.Len() == 0 {
		return true
	}
	defer e.out.Reset()
	return e.write(e.out.String())
}

// write writes a part of the stream. It reports false if the client has disconnected.
func (e *eventStream) write(text string) bool {
	e.server.clients.NextPart(connOf(e.r))
	if _, err := io.WriteString(e.w, text); err != nil {
		return false
	}
	return http.NewResponseController(e.w).Flush() == nil
}

// wait waits until there are more events, which more tells. It reports false if the stream must
// end: because the client has disconnected, the server stops, or the user may no longer have it.
func (e *eventStream) wait(more <-chan struct{}) bool {
	if !e.flush() {
		return false
	}
	check := time.NewTimer(e.server.streamCheck)
	defer check.Stop()
	for {
		select {
		case <-more:
			return e.mayContinue()
		case <-check.C:
			if !e.mayContinue() || !e.write(": alive\n\n") {
				return false
			}
			check.Reset(e.server.streamCheck)
		case <-e.r.Context().Done():
			return false
		case <-e.server.stopping:
			return false
		}
	}
}

// pause waits until the next part may be sent.
func (e *eventStream) pause() {
	if !e.flush() {
		return // wait notices that, too
	}
	select {
	case <-time.After(streamPause):
	case <-e.r.Context().Done():
	case <-e.server.stopping:
	}
}

// mayContinue reports whether the credentials of the request still authenticate the same user, who
// may still have the stream. That is no use of a session.
func (e *eventStream) mayContinue() bool {
	now := e.server.settings.Load()
	x := newExchange(e.r, e.server.balancers)
	err := e.server.authenticate(now, x, e.r)
	return err == nil && x.sender.user == e.x.sender.user && e.may(now, x.sender.user)
}

// lastEventID returns the number that a client that connects again has seen last, if the stream
// was one of this process.
func lastEventID(r *http.Request, process string) (number uint64, ok bool) {
	text, ok := strings.CutPrefix(r.Header.Get("Last-Event-ID"), process+"-")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, err == nil
}
