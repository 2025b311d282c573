package gate

import (
	"encoding/json"
	"net/http"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Parts returns the text of the response to a request, without the final newline, or nil if there
// is none. It neither decodes nor copies results, which may be as large as 32 MiB.
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

// responds reports whether the call gets a response.
func (c *Call) responds() bool {
	if c.In.LikeSPDK {
		return c.answered.answer.Err != nil || len(c.asked.id) > 0 && string(c.asked.id) != "null"
	}
	return !c.asked.notification || !c.In.Batch && c.answered.answer.Status != http.StatusNoContent
}

// separator returns the character before the next response in a batch. n is the number of parts so
// far.
func separator(n int) byte {
	if n == 0 {
		return '['
	}
	return ','
}

// parts returns the text of the response to one call.
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

// ErrorText returns the text of an error response.
func ErrorText(id json.RawMessage, e *jsonrpc.Error) []byte {
	text, err := jsonrpc.Response{ID: id, Error: e}.MarshalJSON()
	if err != nil {
		panic(err) // impossible: the values are numbers and strings
	}
	return text
}
