package web

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"

	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// NotificationsMethod is the method that users must be allowed to call in order to listen to
// events.
const NotificationsMethod = "notify_get_notifications"

// events returns the page with the events of the target and the proxy, a stream of server-sent
// events. The stream ends when the client disconnects or reads too slowly, when the user may no
// longer listen, or when the proxy stops.
func (s *Server) events() http.HandlerFunc {
	return s.Stream(Page{Method: NotificationsMethod}, mayListen, func(e *Stream) {
		after, err := strconv.ParseUint(e.visit.R.Header.Get("Last-Event-ID"), 10, 53)
		if err != nil {
			after = 0 // the client has not seen any event
		}
		listener := s.Events.Subscribe(after)
		defer listener.Close()
		e.sendEvents(listener)
	})
}

// mayListen reports whether a user may listen to events.
func mayListen(current *gate.Settings, user string) bool {
	decision := current.Policy.Decide(user, NotificationsMethod)
	return !decision.Refused() && decision.WithParams(nil).Allowed
}

// sendEvents sends a listener's events until the stream must end. The current settings determine
// which events a tenant's users receive.
func (e *Stream) sendEvents(l *events.Listener) {
	for {
		list, more := l.Take()
		scope := e.server.Gate.Settings().Tenancy.Of(e.visit.X.Sender.User)
		for _, one := range list {
			if SeenBy(scope, one) && !e.sendEvent(one) {
				return
			}
		}
		if len(list) > 0 {
			e.Pause()
		}
		if !e.Wait(more) {
			return
		}
	}
}

func (e *Stream) sendEvent(one events.Event) bool {
	if !eventType.MatchString(one.Type) { // the target chose the type
		one.Type = "notification"
	}
	data, err := json.Marshal(one)
	if err != nil {
		panic(err) // cannot fail for strings and numbers
	}
	return e.Send(one.Type, strconv.FormatUint(one.ID, 10), data)
}

// SeenBy reports whether users with this scope receive an event. A tenant's users receive the event
// only if it certainly concerns one of the tenant's objects.
func SeenBy(scope *tenancy.Scope, e events.Event) bool {
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

// eventType matches the event types that a client can process.
var eventType = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
