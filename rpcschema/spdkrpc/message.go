package spdkrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// maxResponse is the length in bytes of the largest response that SPDK writes.
const maxResponse = 32 << 20

// maxMessage is the largest message that a stream accepts: the largest response plus the members
// around its result.
const maxMessage = maxResponse + 4096

// requestText writes a request. The error states why method or params cannot be written.
func requestText(id uint64, method string, params any) (text []byte, err error) {
	encoded, ready := params.(json.RawMessage)
	if params != nil && (!ready || !json.Valid(encoded)) {
		if encoded, err = jsonrpc.Marshal(params); err != nil {
			return nil, err
		}
	}
	text = make([]byte, 0, len(encoded)+len(method)+64)
	text = append(strconv.AppendUint(append(text, `{"jsonrpc":"2.0","id":`...), id, 10), `,"method":`...)
	if text, err = jsontext.AppendQuote(text, method); err != nil {
		return nil, err
	}
	if len(encoded) > 0 && string(encoded) != "null" {
		text = append(append(text, `,"params":`...), encoded...)
	}
	return append(text, '}'), nil
}

// A message is a response or a notification from the target or the proxy.
type message struct {
	id      uint64 // 0 if absent, null, or not an id of this client, whose ids start at 1
	result  []byte
	failure []byte // the error member
	method  string // the method of a notification, as JSON text
}

var errNoResponse = errors.New("the peer's message has no id, or does not have exactly one of result and error")

// splitMessage reads a message. The function keep returns a part of the message in memory that
// stays valid: dec reuses its own memory unless it was given the whole text.
func splitMessage(dec *jsontext.Decoder, keep func(part []byte) []byte) (m message, err error) {
	t, err := dec.ReadToken()
	if err != nil {
		return m, err
	}
	if t.Kind() != '{' {
		return m, errors.New("the peer's message is not an object")
	}
	var ignored []byte
	hasID := false
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return m, fmt.Errorf("the peer's message: %w", err)
		}
		part := &ignored
		isID, isMethod := false, false
		switch string(name) {
		case `"id"`:
			isID = true
		case `"method"`:
			isMethod = true
		case `"result"`:
			part = &m.result
		case `"error"`:
			part = &m.failure
		}
		value, err := dec.ReadValue()
		if err != nil {
			return m, fmt.Errorf("the peer's message: %w", err)
		}
		switch {
		case isID:
			hasID = true
			m.id, _ = strconv.ParseUint(string(value), 10, 64)
		case isMethod:
			m.method = string(value)
		case part != &ignored:
			*part = keep(value)
		}
	}
	if _, err := dec.ReadToken(); err != nil { // the closing bracket
		return m, fmt.Errorf("the peer's message: %w", err)
	}
	if m.method == "" && (!hasID || (m.result == nil) == (m.failure == nil)) {
		return m, errNoResponse
	}
	return m, nil
}

// messageOf reads a message that must be the whole text, and then resets dec, because the text may
// contain secrets. The message's parts share the text's memory.
func messageOf(dec *jsontext.Decoder, text []byte) (message, error) {
	dec.Reset(bytes.NewBuffer(text), lenient...)
	defer dec.Reset(noInput)
	m, err := splitMessage(dec, func(part []byte) []byte { return part })
	if err != nil {
		return m, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return m, errors.New("the peer's message is not one JSON value")
	}
	return m, nil
}

// noInput is the input of a decoder that is not in use.
var noInput = new(bytes.Buffer)

// lenient contains the options for decoding SPDK's responses, whose names may contain any bytes.
var lenient = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

// decoders pools the memory that tracks names and nesting.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(noInput) }}

// failed returns the error of a response, or nil if the response contains a result.
func (m message) failed() (*jsonrpc.Error, error) {
	if m.failure == nil {
		return nil, nil
	}
	e := new(jsonrpc.Error)
	if err := json.Unmarshal(m.failure, e); err != nil {
		return nil, err
	}
	return e, nil
}

// decodeResponse decodes the response to a call into result.
func decodeResponse(method string, m message, result any) error {
	e, err := m.failed()
	switch {
	case err != nil:
		return &Error{Method: method, Kind: OutcomeUnknown, Message: "the response has an error that cannot be read", Err: err}
	case e != nil:
		return answered(method, e.Code, e.Message)
	}
	return decodeResult(method, m.result, result)
}

// decodeResult decodes the result of a call. The call has been executed even if decodeResult
// returns an error.
func decodeResult(method string, raw json.RawMessage, result any) error {
	switch result := result.(type) {
	case nil:
		return nil
	case *json.RawMessage:
		*result = raw
		return nil
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return &Error{Method: method, Kind: Failed, Message: "the result does not match the schema", Err: err}
	}
	return nil
}
