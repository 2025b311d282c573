package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A Request is one decoded call.
type Request struct {
	// ID is the id as the client wrote it; the response repeats it exactly. It is nil for a
	// notification, which has no id and gets no response.
	ID     json.RawMessage
	Method string
	// Params holds the named parameters; nil if there are none.
	Params map[string]any
}

// Notification reports whether the request gets no response.
func (r *Request) Notification() bool { return r.ID == nil }

// MaxBatch is the maximum number of requests in a batch.
const MaxBatch = 128

// An Element is one request in a message, or an *Error to send as its response. If an invalid
// request has a readable id, Request is also set, so that the response can contain the id.
type Element struct {
	Request *Request
	Err     error
}

// DecodeMessage strictly decodes a request or a batch of requests. A request is an object with
// these members: jsonrpc ("2.0"; optional, as in SPDK), method, params (an object; null means none)
// and id (a string, a number or null). Each member occurs at most once, in exactly this spelling.
// No other members are allowed.
//
// If the text is not one JSON value, is too large or is an empty batch, DecodeMessage returns an
// *Error, and no part of the text may be executed. Otherwise, an invalid element of a batch does
// not affect the other elements. Batches do not nest.
func DecodeMessage(text []byte, lim Limits) (elements []Element, batch bool, err error) {
	v, err := DecodeValue(text, lim)
	var limit *LimitError
	if errors.As(err, &limit) {
		return nil, false, Errorf(CodeTooLarge, "the request does not fit the target: %s", limit)
	}
	if err != nil {
		return nil, false, &Error{Code: CodeParseError, Message: err.Error()}
	}
	list, batch := v.([]any)
	switch {
	case !batch:
		list = []any{v}
	case len(list) == 0:
		return nil, true, Errorf(CodeInvalidRequest, "the batch is empty: send at least one request")
	case len(list) > MaxBatch:
		return nil, true, Errorf(CodeTooLarge, "the batch has %d requests: send at most %d at once", len(list), MaxBatch)
	}
	elements = make([]Element, len(list))
	for i, v := range list {
		elements[i].Request, elements[i].Err = requestOf(v)
	}
	return elements, batch, nil
}

func requestOf(v any) (*Request, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, Errorf(CodeInvalidRequest, "a request must be a JSON object, not %s", TypeName(v))
	}
	r := &Request{}
	id, err := idOf(object)
	if err != nil {
		return nil, err
	}
	r.ID = id
	for name := range object {
		if !slices.Contains([]string{"jsonrpc", "id", "method", "params"}, name) {
			return r, Errorf(CodeInvalidRequest, "unknown member %q: a request has only jsonrpc, id, method and params, spelled exactly like this", name)
		}
	}
	if version, given := object["jsonrpc"]; given && version != "2.0" {
		return r, Errorf(CodeInvalidRequest, `jsonrpc must be the string "2.0"`)
	}
	method, ok := object["method"].(string)
	if !ok || method == "" {
		return r, Errorf(CodeInvalidRequest, "method is missing, or not a string")
	}
	r.Method = method
	switch params := object["params"].(type) {
	case nil:
	case map[string]any:
		r.Params = params
	case []any:
		return r, Errorf(CodeInvalidParams, `params must be an object of named parameters ({"name": value}): SPDK does not support parameters by position`)
	default:
		return r, Errorf(CodeInvalidRequest, "params must be an object of named parameters, not %s", TypeName(params))
	}
	return r, nil
}

func idOf(object map[string]any) (json.RawMessage, error) {
	id, given := object["id"]
	if !given {
		return nil, nil
	}
	switch id := id.(type) {
	case nil:
		return json.RawMessage("null"), nil
	case json.Number:
		return json.RawMessage(id), nil
	case string:
		return Marshal(id)
	default:
		return nil, Errorf(CodeInvalidRequest, "id must be a string, a number or null, not %s", TypeName(id))
	}
}

// A Response is the response to a request: either a result or an error.
type Response struct {
	ID     json.RawMessage // nil means null
	Result json.RawMessage // used if Error is nil; nil means null
	Error  *Error
}

// MarshalJSON writes the response with exactly one of result and error.
func (r Response) MarshalJSON() ([]byte, error) {
	orNull := func(m json.RawMessage) json.RawMessage {
		if len(m) == 0 {
			return json.RawMessage("null")
		}
		return m
	}
	if r.Error != nil {
		return Marshal(struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Error   *Error          `json:"error"`
		}{"2.0", orNull(r.ID), r.Error})
	}
	return Marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
	}{"2.0", orNull(r.ID), orNull(r.Result)})
}

// Marshal writes v as JSON without the HTML escapes that encoding/json adds by default, so that the
// text is readable.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// TypeName returns the JSON type of a decoded value, with an article, for messages.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}
