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
	// done completes the call with its reply, or with nil if there is none.
	done func(reply []byte)
}

// handle handles one JSON value from a connection.
func (c *conn) handle(value any) {
	batch, ok := value.([]any)
	if !ok || len(batch) == 0 || c.server.engine.before("v26.05") {
		c.expect(1)
		c.single(value, func(reply []byte) {
			c.answer(reply)
			c.stir()
		})
		return
	}
	c.expect(1)
	b := &batchReply{missing: len(batch), done: func(reply []byte) { c.answer(reply); c.stir() }}
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
	reply := make([]byte, 0, len(result)+len(r.id)+40)
	reply = append(reply, `{"jsonrpc":"2.0","id":`...)
	reply = append(reply, cmp.Or(string(r.id), "null")...)
	reply = append(reply, `,"result":`...)
	reply = append(reply, result...)
	if r.id == nil {
		r.done(unskipped(reply))
		return
	}
	r.done(append(reply, '}', '\n'))
}

// unskipped returns the text that releases before v26.05 mistakenly send after a successful
// notification: the last part of their write buffer, without its end.
func unskipped(reply []byte) []byte {
	const buffer = 4096
	return reply[(len(reply)-1)/buffer*buffer:]
}

// fail responds to a call with an error. If the call has no id, the response has id null.
func (r *request) fail(e *jsonrpc.Error) {
	reply, err := jsonrpc.Response{ID: r.id, Error: e}.MarshalJSON()
	if err != nil {
		panic(err) // cannot happen, because an Error contains only a code and a message
	}
	r.done(append(reply, '\n'))
}

// A batchReply collects the replies of a batch in the order of completion.
type batchReply struct {
	done func([]byte)

	mu      sync.Mutex
	missing int
	replies [][]byte
}

func (b *batchReply) add(reply []byte) {
	b.mu.Lock()
	b.missing--
	if reply != nil {
		b.replies = append(b.replies, bytes.TrimSuffix(reply, []byte("\n")))
	}
	last := b.missing == 0
	b.mu.Unlock()
	switch {
	case !last:
	case len(b.replies) == 0:
		b.done(nil)
	default:
		b.done([]byte("[" + string(bytes.Join(b.replies, []byte(","))) + "]\n"))
	}
}
