package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Names of the console's own requests in the log and the metrics. They are no methods: nobody can
// call them by JSON-RPC, and roles cannot name them.
const (
	signInMethod  = "console.sign_in"
	signOutMethod = "console.sign_out"
)

var consoleMethods = []string{signInMethod, signOutMethod, accessMethod, explainMethod, auditMethod}

// serveConsole answers a request of the console, which answer answers, like a call of method:
// within the same limits, and with an entry in the audit log. Every authenticated user may make
// it, unless answer returns an error.
func (s *Server) serveConsole(w http.ResponseWriter, r *http.Request, method string, answer func(now *settings, x *exchange) (any, error)) {
	x, now := newExchange(r, s.balancers), s.settings.Load()
	w.Header().Set("X-Request-Id", x.id)
	err := s.receiveGet(now, x, w, r)
	defer func() { s.releaseMemory(x) }()
	if x.entered {
		defer s.inFlight.leave()
	}
	var result any
	if err == nil {
		result, err = s.answerConsole(now, x, answer)
	}
	s.limitUnreadBody(w, x, now.read)
	answered := s.noteConsole(x, method, nil, err)
	if err != nil {
		writeMessage(w, answered, answered.err.Message)
		return
	}
	writeJSON(w, http.StatusOK, result)
}

func (s *Server) answerConsole(now *settings, x *exchange, answer func(now *settings, x *exchange) (any, error)) (result any, err error) {
	defer s.recoverFrom(x, &err)
	return answer(now, x)
}

// noteConsole writes the entry of a request of the console in the audit log, and returns the answer
// to it.
func (s *Server) noteConsole(x *exchange, method string, params map[string]any, err error) answer {
	x.noteCalls([]jsonrpc.Element{{}}, false, nil)
	c := x.calls[0]
	c.asked.method, c.asked.redacted = method, params
	switch {
	case x.sender.unauthenticated:
	case err == nil:
		c.decided.decision = auditlog.Allowed
	default:
		c.decided.decision = auditlog.Denied
	}
	c.noteAnswer(nil, err)
	s.audit(c)
	return c.answered.answer
}

// writeMessage answers a request of the console with an error.
func writeMessage(w http.ResponseWriter, a answer, message string) {
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(1, a.retryAfter.Seconds()))))
	}
	if a.status == http.StatusServiceUnavailable || a.status == http.StatusRequestTimeout {
		w.Header().Set("Connection", "close")
	}
	writeJSON(w, a.status, map[string]string{"message": message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the proxy's own values
	}
	send(w, status, [][]byte{text})
}
