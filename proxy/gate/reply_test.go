package gate

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Calls by POST get the responses that JSON-RPC prescribes, so notifications get none. Calls
// through the local socket get the responses that SPDK would send.
func TestResponsesFollowJSONRPCOrSPDK(t *testing.T) {
	refused := Answer{Status: http.StatusForbidden, Err: &jsonrpc.Error{}}
	done := Answer{Status: http.StatusOK}
	for name, c := range map[string]struct {
		id           string
		notification bool
		answer       Answer
		spdk         bool // whether the request arrives at the local socket
		post, batch  bool
	}{
		"a call":                          {"1", false, done, true, true, true},
		"a call whose id is a string":     {`"a"`, false, done, true, true, true},
		"a call with the id null":         {"null", false, done, false, true, true},
		"a refused call":                  {"1", false, refused, true, true, true},
		"a notification":                  {"", true, Answer{Status: http.StatusNoContent}, false, false, false},
		"a refused notification":          {"", true, refused, true, true, false},
		"a refused call with the id null": {"null", false, refused, true, true, true},
		"a message that is not JSON":      {"", false, refused, true, true, true},
	} {
		call := func(x *Exchange) *Call {
			return &Call{In: x, asked: asked{id: json.RawMessage(c.id), notification: c.notification}, answered: answered{answer: c.answer}}
		}
		assert.Equal(t, c.spdk, call(&Exchange{LikeSPDK: true}).responds(), "%s, as SPDK", name)
		assert.Equal(t, c.post, call(&Exchange{}).responds(), "%s, by POST", name)
		assert.Equal(t, c.batch, call(&Exchange{Batch: true}).responds(), "%s, in a batch", name)
	}
}
