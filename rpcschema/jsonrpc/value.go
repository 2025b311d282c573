package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits restricts JSON text before it is decoded. A zero field means no limit.
type Limits struct {
	Bytes  int // length of the text in bytes
	Values int // values as SPDK counts them: each scalar, member name, and opening and closing bracket
	Depth  int // nesting of arrays and objects
}

// These are SPDK's limits on a request, by release (lib/jsonrpc/jsonrpc_internal.h).
var (
	// LimitsBeforeV2605 applies up to v26.01.
	LimitsBeforeV2605 = Limits{Bytes: 32 << 10, Values: 1024, Depth: 32}
	// LimitsV2605 applies since v26.05.
	LimitsV2605 = Limits{Bytes: 256 << 10, Values: 8192, Depth: 32}
)

// A LimitError names the limit that a JSON value exceeds.
type LimitError struct {
	What  string // such as "bytes", "values" or "levels of nesting"
	Limit int
}

func (e *LimitError) Error() string { return fmt.Sprintf("more than %d %s", e.Limit, e.What) }

// DecodeValue decodes exactly one JSON value: null, bool, string, json.Number, []any or
// map[string]any. Numbers keep their spelling, so a uint64 keeps its exact value. Duplicate
// members, invalid UTF-8 and any text after the value are errors.
func DecodeValue(text []byte, lim Limits) (any, error) {
	if lim.Bytes > 0 && len(text) > lim.Bytes {
		return nil, &LimitError{What: "bytes", Limit: lim.Bytes}
	}
	d := decoder{dec: decoders.Get().(*jsontext.Decoder), lim: lim}
	d.dec.Reset(bytes.NewBuffer(text))
	defer func() {
		// drop the reference to the request, which may contain secrets
		d.dec.Reset(bytes.NewBuffer(nil))
		decoders.Put(d.dec)
	}()
	v, err := d.value()
	if err != nil {
		return nil, describe(err)
	}
	switch _, err := d.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return v, nil
	case err != nil:
		return nil, describe(err)
	}
	return nil, fmt.Errorf("more than one JSON value in one request: send them one by one, or as a batch in [ ]")
}

// decoders pools the memory that tracks names and nesting.
var decoders = sync.Pool{New: func() any { return jsontext.NewDecoder(bytes.NewBuffer(nil)) }}

type decoder struct {
	dec    *jsontext.Decoder
	lim    Limits
	values int
}

// token reads the next token and counts it.
func (d *decoder) token() (jsontext.Token, error) {
	t, err := d.dec.ReadToken()
	if err != nil {
		return t, err
	}
	d.values++
	if d.lim.Values > 0 && d.values > d.lim.Values {
		return t, &LimitError{What: "values", Limit: d.lim.Values}
	}
	if d.lim.Depth > 0 && d.dec.StackDepth() > d.lim.Depth {
		return t, &LimitError{What: "levels of nesting", Limit: d.lim.Depth}
	}
	return t, nil
}

func (d *decoder) value() (any, error) {
	t, err := d.token()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return t.Bool(), nil
	case '"':
		return t.String(), nil
	case '0':
		number := t.String()
		if err := checkNumber(number); err != nil {
			return nil, err
		}
		return json.Number(number), nil
	case '[':
		list := []any{}
		for d.dec.PeekKind() != ']' {
			v, err := d.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.token()
		return list, err
	default: // '{'
		object := map[string]any{}
		for d.dec.PeekKind() != '}' {
			name, err := d.token()
			if err != nil {
				return nil, err
			}
			key := name.String() // convert before the next read, which reuses the token's memory
			v, err := d.value()
			if err != nil {
				return nil, err
			}
			object[key] = v
		}
		_, err := d.token()
		return object, err
	}
}

// checkNumber limits the size of a number, because computations with large numbers may be slow. For
// example, 1e999999 has a million digits. SPDK's own numbers have at most 20 digits.
func checkNumber(text string) error {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if len(mantissa) > maxDigits {
		return &LimitError{What: "characters in a number", Limit: maxDigits}
	}
	if len(strings.TrimLeft(exponent, "+-0")) > len("999") {
		return &LimitError{What: "as a number's exponent", Limit: maxExponent}
	}
	return nil
}

// These limits on numbers apply regardless of Limits.
const (
	maxDigits   = 1000
	maxExponent = 999
)

// describe rewords the parser's error for the client.
func describe(err error) error {
	var limit *LimitError
	if errors.As(err, &limit) {
		return err
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("the JSON text is empty or incomplete")
		}
		return fmt.Errorf("not valid JSON: %w", err)
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return fmt.Errorf("member %s occurs twice in one object: %w", syntax.JSONPointer, jsontext.ErrDuplicateName)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the JSON text ends too early, at byte %d", syntax.ByteOffset)
	}
	return fmt.Errorf("not valid JSON at byte %d: %w", syntax.ByteOffset, syntax.Err)
}
