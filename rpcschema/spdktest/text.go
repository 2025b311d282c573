package spdktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// These errors state why SPDK's parser cannot return a value from the bytes that have been received
// so far.
var (
	errIncomplete = errors.New("no complete JSON value yet")
	errUnparsable = errors.New("not JSON, or nested too deeply")
)

// maxDepth is the value of SPDK_JSON_MAX_NESTING_DEPTH.
const maxDepth = 64

// A text is one JSON value from the stream.
type text struct {
	value  any // null, bool, string, json.Number, []any or map[string]any
	count  int // values as SPDK counts them: scalars, names, and brackets
	length int // number of bytes, including the white space that follows
}

// twice is the name of a member that nextText adds to an object with duplicate members, so that the
// decoder refuses the object. No method has a parameter with this name.
const twice = "\x00twice"

// nextText reads the first JSON value in buf. The error is errIncomplete if more bytes are needed,
// and errUnparsable if the bytes can never become a value.
func nextText(buf []byte) (text, error) {
	p := parser{dec: jsontext.NewDecoder(bytes.NewBuffer(buf), jsontext.AllowDuplicateNames(true))}
	value, err := p.value()
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return text{}, errIncomplete
	case err != nil:
		return text{}, errUnparsable
	}
	end := int(p.dec.InputOffset())
	for end < len(buf) && bytes.IndexByte([]byte(" \t\r\n"), buf[end]) >= 0 {
		end++
	}
	return text{value: value, count: p.count, length: end}, nil
}

type parser struct {
	dec   *jsontext.Decoder
	count int
}

func (p *parser) token() (jsontext.Token, error) {
	t, err := p.dec.ReadToken()
	p.count++
	if err == nil && p.dec.StackDepth() > maxDepth {
		err = errUnparsable
	}
	return t, err
}

func (p *parser) value() (any, error) {
	t, err := p.token()
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
		return json.Number(t.String()), nil
	case '[':
		list := []any{}
		for {
			if kind := p.dec.PeekKind(); kind == ']' || kind == 0 {
				break
			}
			v, err := p.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := p.token()
		return list, err
	default:
		return p.object()
	}
}

func (p *parser) object() (any, error) {
	object := map[string]any{}
	for {
		if kind := p.dec.PeekKind(); kind == '}' || kind == 0 {
			break
		}
		t, err := p.token()
		if err != nil {
			return nil, err
		}
		name := t.String() // copied before the next read, which reuses the token's memory
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		if _, seen := object[name]; seen {
			object[twice] = true
		}
		object[name] = v
	}
	_, err := p.token()
	return object, err
}
