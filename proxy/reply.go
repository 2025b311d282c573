package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// reply writes the answer of the call, or the answers of a batch in its order, without those
// to notifications. A batch has status 200, because each answer in it has its own error.
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

// separator is the text before an answer of a batch that n parts of other answers precede.
func separator(n int) byte {
	if n == 0 {
		return '['
	}
	return ','
}

// parts is the text of one answer. SPDK's result, of up to 32 MiB, is not decoded or copied.
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

// send writes JSON and a newline, or no body if status is 204.
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
			return // the client disconnected; the log has the outcome
		}
	}
}

// An answerWriter notes whether a part of the answer has been written.
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

// Unwrap lets http.ResponseController find the original writer.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// netHTTP returns net/http's own ResponseWriter, which http.MaxBytesReader tells not to read
// the rest of a body.
func netHTTP(w http.ResponseWriter) http.ResponseWriter {
	if answer, ok := w.(*answerWriter); ok {
		return answer.ResponseWriter
	}
	return w
}
