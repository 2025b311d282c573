package spdktest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

var errInvalidRequest = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Invalid request")

// A request is one call on its way to the engine.
type request struct {
	conn   *conn
	id     json.RawMessage // nil or null if a successful call gets no response
	method string
	params any // nil, map[string]any or []any
	// done completes the call with its response, or with nil if there is none.
	done func(response []byte)
}

// handle handles one JSON value from a connection.
func (c *conn) handle(value any) {
	batch, ok := value.([]any)
	if !ok || len(batch) == 0 || c.server.engine.before("v26.05") {
		c.expect(1)
		c.single(value, func(response []byte) {
			c.answer(response)
			c.stir()
		})
		return
	}
	c.expect(1)
	b := &batchResponse{missing: len(batch), done: func(response []byte) { c.answer(response); c.stir() }}
	for _, v := range batch {
		c.single(v, b.add)
	}
}

// single handles one request object, and refuses any other value as invalid.
func (c *conn) single(value any, done func([]byte)) {
	r := &request{conn: c, done: done}
	object, ok := value.(map[string]any)
	if !ok || !r.decode(object) {
		r.fail(errInvalidRequest)
		return
	}
	c.server.dispatch(r)
}

// decode reads a request object in the same order as SPDK. If it finds a mistake before the id, the
// error response has id null.
func (r *request) decode(object map[string]any) bool {
	for name := range object {
		switch name {
		case "jsonrpc", "method", "params", "id":
		default:
			return false
		}
	}
	if version, given := object["jsonrpc"]; given && version != "2.0" {
		return false
	}
	method, ok := object["method"].(string)
	if !ok {
		return false
	}
	r.method = method
	if id, given := object["id"]; given {
		switch id := id.(type) {
		case nil:
		case string:
			r.id, _ = jsonrpc.Marshal(id)
		case json.Number:
			r.id = json.RawMessage(id)
		default:
			return false
		}
	}
	switch object["params"].(type) {
	case nil, map[string]any, []any:
		r.params = object["params"]
		return true
	}
	return false
}

// succeed responds to a call with its result, unless the call has no id.
func (r *request) succeed(result json.RawMessage) {
	if r.id == nil && !r.conn.server.engine.before("v26.05") {
		r.done(nil)
		return
	}
	response := make([]byte, 0, len(result)+len(r.id)+40)
	response = append(response, `{"jsonrpc":"2.0","id":`...)
	response = append(response, cmp.Or(string(r.id), "null")...)
	response = append(response, `,"result":`...)
	response = append(response, result...)
	if r.id == nil {
		r.done(unskipped(response))
		return
	}
	r.done(append(response, '}', '\n'))
}

// unskipped returns the text that releases before v26.05 mistakenly send after a successful
// notification: the last part of their write buffer, without its end.
func unskipped(response []byte) []byte {
	const buffer = 4096
	return response[(len(response)-1)/buffer*buffer:]
}

// fail responds to a call with an error. If the call has no id, the response has id null.
func (r *request) fail(e *jsonrpc.Error) {
	response, err := jsonrpc.Response{ID: r.id, Error: e}.MarshalJSON()
	if err != nil {
		panic(err) // cannot happen, because an Error contains only a code and a message
	}
	r.done(append(response, '\n'))
}

// A batchResponse collects the responses of a batch in the order of completion.
type batchResponse struct {
	done func([]byte)

	mu        sync.Mutex
	missing   int
	responses [][]byte
}

func (b *batchResponse) add(response []byte) {
	b.mu.Lock()
	b.missing--
	if response != nil {
		b.responses = append(b.responses, bytes.TrimSuffix(response, []byte("\n")))
	}
	last := b.missing == 0
	b.mu.Unlock()
	switch {
	case !last:
	case len(b.responses) == 0:
		b.done(nil)
	default:
		b.done([]byte("[" + string(bytes.Join(b.responses, []byte(","))) + "]\n"))
	}
}
