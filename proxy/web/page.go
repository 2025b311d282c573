package web

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

// A Page treats each request as a call of one of the proxy's own methods. The method finds the
// Visit in the exchange's Endpoint.
type Page struct {
	Method string
	// Identify authenticates the request's user. If it is nil, the user is authenticated by the
	// session or, without a session, by the request's credentials.
	Identify func(v *Visit) error
	// Write writes the value of a successful call.
	Write func(v *Visit, value any)
	// Fail writes an error. If it is nil, errors are written as JSON-RPC errors.
	Fail func(v *Visit, c *gate.Call)
	// Stream means that the response never ends by itself. A stopping server does not wait for it.
	Stream bool
	// FromOtherSites means that another site's page may cause the request. Identify must then
	// determine whether the user began the request.
	FromOtherSites bool
}

// maxOwnAnswer is the maximum size, in bytes, of a response that the proxy itself generates. It
// counts against the user's memory limit before the response is generated.
const maxOwnAnswer = 1 << 20

// Page returns the handler of a page.
func (s *Server) Page(p Page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, endpoint{
			identify: p.Identify,
			read: func(v *Visit) error {
				v.X.Page = true
				if err := s.Gate.Reserve(v.X, maxOwnAnswer); err != nil {
					return err
				}
				v.X.NoteCall(p.Method, nil)
				return nil
			},
			refused: func(v *Visit, err error) {
				v.X.Page = true
				v.X.NoteCall(p.Method, err)
			},
			answer:  func(v *Visit) { s.answerPage(v, p) },
			endless: p.Stream, fromOtherSites: p.FromOtherSites,
		})
	}
}

func (s *Server) answerPage(v *Visit, p Page) {
	c := v.X.Calls[0]
	switch {
	case c.Err() == nil && p.Stream:
		s.Gate.Leave(v.X)
		p.Write(v, c.Value())
	case c.Err() == nil:
		s.Gate.KeepReserved(v.X, len(c.Result()))
		p.Write(v, c.Value())
	case p.Fail != nil:
		p.Fail(v, c)
	default:
		reply(v.W, v.X)
	}
}

// WriteJSON writes a value as JSON.
func WriteJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot fail for the proxy's own values
	}
	send(w, status, [][]byte{text})
}

// WriteMessage responds to a console request with an error.
func WriteMessage(w http.ResponseWriter, a gate.Answer, message string) {
	if a.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, a.RetryAfter.Seconds()))))
	}
	if a.Status == http.StatusServiceUnavailable || a.Status == http.StatusRequestTimeout {
		w.Header().Set("Connection", "close")
	}
	WriteJSON(w, a.Status, map[string]string{"message": message})
}
