package proxy

import (
	"encoding/json"
	"net/http"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// serveGet answers a GET like a call of method, within the same limits. It writes a result
// by write, and an error like that of a call.
func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, method string, write func(result json.RawMessage)) {
	s.serveGetCall(w, r, method, func(c *call) { write(c.answered.result) })
}

// serveGetCall is serveGet for answers that are not JSON.
func (s *Server) serveGetCall(w http.ResponseWriter, r *http.Request, method string, write func(c *call)) {
	x := newExchange(r, s.balancers)
	x.get = true
	w.Header().Set("X-Request-Id", x.id)
	now := s.settings.Load()
	x.noteCalls([]jsonrpc.Element{{Request: &jsonrpc.Request{Method: method}}}, false, s.receiveGet(now, x, w, r))
	defer func() { s.releaseMemory(x) }()
	if x.entered {
		defer s.inFlight.leave()
	}
	c := x.calls[0]
	c.asked.notification = false
	c.noteAnswer(s.perform(r.Context(), now, c))
	x.reserved = s.memory.Shrink(x.sender.user, x.reserved, len(c.answered.result))
	s.audit(c)
	s.limitUnreadBody(w, x, now.read)
	if s.inFlight.isDraining() {
		w.Header().Set("Connection", "close") // the next call is for the next process
	}
	if c.answered.err != nil {
		x.reply(w)
		return
	}
	write(c)
}

// maxOwnAnswer is the largest answer, in bytes, that the proxy makes itself. It counts
// towards the user's memory before the answer is made.
const maxOwnAnswer = 1 << 20

// receiveGet is receive for a GET, whose method is known and whose body is ignored.
func (s *Server) receiveGet(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) (err error) {
	defer s.recoverFrom(x, &err)
	if err := s.enter(now, x, w, r); err != nil {
		return err
	}
	x.reserved, err = s.memory.Reserve(x.sender.user, maxOwnAnswer)
	return err
}
