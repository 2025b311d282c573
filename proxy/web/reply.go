package web

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// reply writes the response to the call or, in order and without notifications, the responses to
// the calls of a batch. A batch has status 200, because each of its responses has its own error.
func reply(w http.ResponseWriter, x *gate.Exchange) {
	status, parts, retryAfter := http.StatusOK, x.Parts(), time.Duration(0)
	for _, c := range x.Calls {
		retryAfter = max(retryAfter, c.Answer().RetryAfter)
	}
	switch {
	case !x.Batch:
		status = x.Calls[0].Answer().Status
	case len(parts) == 0:
		status = http.StatusNoContent
	}
	h := w.Header()
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(max(1, retryAfter.Seconds()))))
	}
	switch status {
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = x.Sender.Challenges
	case http.StatusServiceUnavailable, http.StatusRequestTimeout:
		h.Set("Connection", "close")
	}
	send(w, status, parts)
}

// writeError responds with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	send(w, status, [][]byte{gate.ErrorText(id, e)})
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
			return // the client has disconnected, but the log contains the outcome
		}
	}
}

// An answerWriter records whether part of the response has been written.
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

// netHTTP returns net/http's own ResponseWriter, which http.MaxBytesReader needs in order to
// prevent net/http from reading the rest of a body.
func netHTTP(w http.ResponseWriter) http.ResponseWriter {
	if answer, ok := w.(*answerWriter); ok {
		return answer.ResponseWriter
	}
	return w
}
