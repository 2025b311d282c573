package web

import (
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/session"
)

// A Visit is an HTTP request.
type Visit struct {
	W http.ResponseWriter
	R *http.Request
	X *gate.Exchange
	// Session is the console session to which the request belongs. It is nil if the request has its
	// own credentials.
	Session *session.Session[SignedIn]

	Data any // the page's value

	current  *gate.Settings
	bodyRead bool
}

// Settings returns the settings that applied when the request arrived.
func (v *Visit) Settings() *gate.Settings { return v.current }

// An endpoint describes the differences between kinds of HTTP requests.
type endpoint struct {
	// identify authenticates the request's user. If it is nil, the user is authenticated by the
	// session or, without a session, by the request's credentials.
	identify func(v *Visit) error
	// read records the calls in a request that the gate has accepted.
	read func(v *Visit) error
	// refused records the calls in a request that was refused with err.
	refused func(v *Visit, err error)
	answer  func(v *Visit)
	// endless means that the response to a successful call is a stream that never ends by itself.
	endless bool
	// fromOtherSites is described in Page.FromOtherSites.
	fromOtherSites bool
}

// serve handles a request from its arrival to its response.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, d endpoint) {
	v := s.arrive(w, r)
	defer s.Gate.Leave(v.X)
	err := s.enter(v, d)
	if err == nil {
		err = s.Gate.Guard(v.X, func() error { return d.read(v) })
	}
	if err != nil {
		d.refused(v, err)
	}
	s.Gate.Perform(r.Context(), v.current, v.X)
	if !d.endless || v.X.Calls[0].Err() != nil {
		s.limitUnreadBody(v) // not for a stream, because this deadline would end it
	}
	if s.Gate.Draining() {
		// close the connection, so that the client's next call reaches the next process
		w.Header().Set("Connection", "close")
	}
	d.answer(v)
}

// arrive begins the exchange of a request.
func (s *Server) arrive(w http.ResponseWriter, r *http.Request) *Visit {
	source, err := s.Balancers.sourceOf(r)
	v := &Visit{W: w, R: r, X: gate.NewExchange(source), current: s.Gate.Settings()}
	v.X.NoSource, v.X.Client, v.X.Endpoint = err, traceOf(r.Header), v
	w.Header().Set("X-Request-Id", v.X.ID)
	return v
}

// enter takes a request through the stages that are common to its calls.
func (s *Server) enter(v *Visit, d endpoint) error {
	identify := d.identify
	if identify == nil {
		identify = s.authenticate
	}
	err := s.Gate.Enter(v.current, v.X, gate.Arrival{
		Conn:     connOf(v.R),
		Identify: func(*gate.Settings, *gate.Exchange) error { return identify(v) },
		CheckOrigin: func(*gate.Exchange) error {
			if err := v.checkOrigin(); err != nil && !d.fromOtherSites {
				return err
			}
			if v.Session != nil && !v.sentInBackground() {
				s.Sessions.Use(*v.Session)
			}
			return nil
		},
	})
	if v.X.Sender.Unauthenticated && !v.bodyRead {
		s.skipBody(v.W)
	}
	return err
}
