package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// reply writes the answer. SPDK's result is passed on as it is: it may have
// 32 MiB, which nobody needs to look at here.
func (c *call) reply(w http.ResponseWriter) {
	h := w.Header()
	if c.answer.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(max(1, c.answer.retryAfter.Seconds()))))
	}
	switch c.answer.status {
	case http.StatusNoContent:
		w.WriteHeader(http.StatusNoContent)
		return
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Basic realm="spdk-proxy", charset="UTF-8"`)
	case http.StatusServiceUnavailable, http.StatusRequestTimeout:
		h.Set("Connection", "close")
	}
	if c.answer.err != nil {
		writeError(w, c.answer.status, c.rpcID, c.answer.err)
		return
	}
	id, result := orNull(c.rpcID), orNull(c.result)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(replyHead)+len(id)+len(replyResult)+len(result)+len(replyTail)))
	w.WriteHeader(c.answer.status)
	for _, part := range [][]byte{[]byte(replyHead), id, []byte(replyResult), result, []byte(replyTail)} {
		if _, err := w.Write(part); err != nil {
			return // the client left; the log has the outcome
		}
	}
}

const (
	replyHead   = `{"jsonrpc":"2.0","id":`
	replyResult = `,"result":`
	replyTail   = "}\n"
)

func orNull(m json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return json.RawMessage("null")
	}
	return m
}

// writeError answers with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	text, err := jsonrpc.Response{ID: id, Error: e}.MarshalJSON()
	if err != nil {
		panic(err) // numbers and strings
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
