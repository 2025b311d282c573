package gate

import (
	"encoding/json"
	"net/http"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Parts is the text of the response to a request, without its end of line; nil: it has none. A
// result, of up to 32 MiB, is neither decoded nor copied.
func (x *Exchange) Parts() (parts [][]byte) {
	for _, c := range x.Calls {
		if !c.responds() {
			continue
		}
		if x.Batch {
			parts = append(parts, []byte{separator(len(parts))})
		}
		parts = append(parts, c.parts()...)
	}
	if x.Batch && len(parts) > 0 {
		parts = append(parts, []byte("]"))
	}
	return parts
}

// responds reports whether the client gets a response to the call.
func (c *Call) responds() bool {
	if c.In.LikeSPDK {
		return c.answered.answer.Err != nil || len(c.asked.id) > 0 && string(c.asked.id) != "null"
	}
	return !c.asked.notification || !c.In.Batch && c.answered.answer.Status != http.StatusNoContent
}

// separator is the text before a response of a batch that n parts of other responses precede.
func separator(n int) byte {
	if n == 0 {
		return '['
	}
	return ','
}

// parts is the text of the response to one call.
func (c *Call) parts() [][]byte {
	if c.answered.answer.Err != nil {
		return [][]byte{ErrorText(c.asked.id, c.answered.answer.Err)}
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

// ErrorText is the text of a response with an error.
func ErrorText(id json.RawMessage, e *jsonrpc.Error) []byte {
	text, err := jsonrpc.Response{ID: id, Error: e}.MarshalJSON()
	if err != nil {
		panic(err) // numbers and strings
	}
	return text
}
