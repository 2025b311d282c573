package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// reply answers with the call's answer, or with those of a batch, in its order
// and without those to notifications: then with 200, as each bears its own error.
func (x *exchange) reply(w http.ResponseWriter) {
	status, parts, retryAfter := http.StatusOK, [][]byte(nil), time.Duration(0)
	for _, c := range x.calls {
		retryAfter = max(retryAfter, c.answered.answer.retryAfter)
		if x.batch && !c.asked.notification {
			parts = append(append(parts, []byte{separator(len(parts))}), c.parts()...)
		}
	}
	switch {
	case !x.batch:
		status, parts = x.calls[0].answered.answer.status, x.calls[0].parts()
	case len(parts) == 0:
		status = http.StatusNoContent
	default:
		parts = append(parts, []byte("]"))
	}
	h := w.Header()
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(max(1, retryAfter.Seconds()))))
	}
	switch status {
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = x.sender.challenges
	case http.StatusServiceUnavailable, http.StatusRequestTimeout:
		h.Set("Connection", "close")
	}
	send(w, status, parts)
}

// separator stands before the answer of a batch that follows n parts of others.
func separator(n int) byte {
	if n == 0 {
		return '['
	}
	return ','
}

// parts are the text of one answer. SPDK's result is passed on as it is: it may
// have 32 MiB, which nobody needs to look at here.
func (c *call) parts() [][]byte {
	if c.answered.answer.err != nil {
		return [][]byte{errorText(c.asked.id, c.answered.answer.err)}
	}
	return [][]byte{[]byte(replyHead), orNull(c.asked.id), []byte(replyResult), orNull(c.answered.result), []byte(replyTail)}
}

const (
	replyHead   = `{"jsonrpc":"2.0","id":`
	replyResult = `,"result":`
	replyTail   = "}"
)

func orNull(m json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return json.RawMessage("null")
	}
	return m
}

// writeError answers with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	send(w, status, [][]byte{errorText(id, e)})
}

func errorText(id json.RawMessage, e *jsonrpc.Error) []byte {
	text, err := jsonrpc.Response{ID: id, Error: e}.MarshalJSON()
	if err != nil {
		panic(err) // numbers and strings
	}
	return text
}

// send writes JSON, with a line's end, or nothing at all with 204.
func send(w http.ResponseWriter, status int, parts [][]byte) {
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	length := len("\n")
	for _, p := range parts {
		length += len(p)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(status)
	for _, part := range append(parts, []byte("\n")) {
		if _, err := w.Write(part); err != nil {
			return // the client left; the log has the outcome
		}
	}
}

// An answerWriter notes whether the answer was begun.
type answerWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *answerWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// netHTTP is the ResponseWriter of net/http's own, which http.MaxBytesReader tells
// that it must not read on.
func netHTTP(w http.ResponseWriter) http.ResponseWriter {
	if answer, ok := w.(*answerWriter); ok {
		return answer.ResponseWriter
	}
	return w
}
