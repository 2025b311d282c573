package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"

	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// notificationsMethod is the method that users must be allowed to call to listen to events.
const notificationsMethod = "notify_get_notifications"

// eventsKept is how many events are kept for clients that connect again, each of about 300 bytes.
const eventsKept = 4096

// serveEvents answers GET /events with a stream of server-sent events, which ends when the client
// leaves or reads too slowly, when the user loses the right to it, or when the proxy stops.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	x := newExchange(r, s.balancers)
	x.get = true
	w.Header().Set("X-Request-Id", x.id)
	now := s.settings.Load()
	x.noteCalls([]jsonrpc.Element{{Request: &jsonrpc.Request{Method: notificationsMethod}}}, false, s.receiveGet(now, x, w, r))
	x.reserved = s.memory.Shrink(x.sender.user, x.reserved, 0)
	if x.entered {
		s.inFlight.leave() // a stopping server does not wait for streams
	}
	c := x.calls[0]
	c.asked.notification = false
	leave, err := s.openEvents(r.Context(), now, c)
	c.noteAnswer(nil, err)
	s.audit(c)
	if err != nil {
		s.limitUnreadBody(w, x, now.read)
		x.reply(w)
		return
	}
	defer leave()
	after, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 53)
	if err != nil {
		after = 0 // a client that knows no event
	}
	listener := s.events.Subscribe(after)
	defer listener.Close()
	h := w.Header()
	h.Set("Content-Type", eventStreamType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // of a reverse proxy
	e := &eventStream{server: s, w: w, r: r, x: x, may: (*settings).mayListen}
	if e.write(": stream\n\n") { // so that the client knows at once that it is connected
		e.sendEvents(listener)
	}
}

// openEvents takes a request for events through the stages.
func (s *Server) openEvents(ctx context.Context, now *settings, c *call) (leave func(), err error) {
	defer s.recoverFrom(c.in, &err)
	if c.asked.malformed != nil {
		return nil, c.asked.malformed
	}
	user := c.in.sender.user
	method, err := s.schema.Find(notificationsMethod, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c.noteMethod(method, nil)
	decision := now.policy.Decide(user, method.Name)
	c.noteDecision(decision)
	if decision.Refused() {
		return nil, errDenied
	}
	if _, err := s.decideParams(c, decision, method, nil, rpcschema.Release{}); err != nil {
		return nil, err
	}
	if scope := now.tenancy.Of(user); scope != nil {
		c.decided.tenant = scope.Name
		conn, err := s.target.Connect(ctx, user)
		if err == nil {
			err = s.checkExamination(ctx, now, scope, conn, method.Name)
			c.noteAdmission(scope, nil, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.streams.open(user)
}

// mayListen reports whether a user may listen to events.
func (now *settings) mayListen(user string) bool {
	decision := now.policy.Decide(user, notificationsMethod)
	return !decision.Refused() && decision.WithParams(nil).Allowed
}

// sendEvents sends the events of a listener until the stream must end. Those of tenants are chosen
// by the present settings.
func (e *eventStream) sendEvents(l *events.Listener) {
	for {
		list, more := l.Take()
		scope := e.server.settings.Load().tenancy.Of(e.x.sender.user)
		for _, one := range list {
			if seenBy(scope, one) && !e.sendEvent(one) {
				return
			}
		}
		if len(list) > 0 {
			e.pause()
		}
		if !e.wait(more) {
			return
		}
	}
}

func (e *eventStream) sendEvent(one events.Event) bool {
	if !eventType.MatchString(one.Type) { // of the target
		one.Type = "notification"
	}
	data, err := json.Marshal(one)
	if err != nil {
		panic(err) // strings and numbers
	}
	return e.send(one.Type, strconv.FormatUint(one.ID, 10), data)
}

// seenBy reports whether users of a scope get an event: those of a tenant only if it is certainly
// about an object of theirs.
func seenBy(scope *tenancy.Scope, e events.Event) bool {
	switch {
	case scope == nil, e.Type == events.Gap:
		return true
	case e.Scope.Name == "":
		return false
	case e.Scope.Kind == "tenant":
		return e.Scope.Name == scope.Name
	}
	return scope.Owns(e.Scope.Kind, e.Scope.Name)
}

// eventType is what a client can use as the type of an event.
var eventType = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
