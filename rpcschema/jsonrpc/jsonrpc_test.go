package jsonrpc

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decodeOne decodes a single request and rejects a batch.
func decodeOne(text string, lim Limits) (*Request, error) {
	elements, batch, err := DecodeMessage([]byte(text), lim)
	if err != nil {
		return nil, err
	}
	if batch || len(elements) != 1 {
		return nil, errors.New("a batch")
	}
	return elements[0].Request, elements[0].Err
}

func TestBatchElementsAreDecodedSeparately(t *testing.T) {
	elements, batch, err := DecodeMessage([]byte(` [{"method":"a","id":1},7,[{"method":"b","id":2}],{"method":"c","id":3,"x":1},{"method":"d"}]`), Limits{})
	require.NoError(t, err)
	assert.True(t, batch)
	require.Len(t, elements, 5)
	assert.Equal(t, &Request{ID: json.RawMessage("1"), Method: "a"}, elements[0].Request)
	require.NoError(t, elements[0].Err)
	for i, says := range map[int]string{1: "not a number", 2: "not an array", 3: `unknown member "x"`} {
		var e *Error
		require.ErrorAs(t, elements[i].Err, &e, i)
		assert.Equal(t, CodeInvalidRequest, e.Code)
		assert.Contains(t, e.Message, says)
	}
	assert.Equal(t, json.RawMessage("3"), elements[3].Request.ID, "the response can contain it")
	assert.True(t, elements[4].Request.Notification())

	_, batch, err = DecodeMessage([]byte(`{"method":"a"}`), Limits{})
	require.NoError(t, err)
	assert.False(t, batch)
}

func TestInvalidBatchesAreRejected(t *testing.T) {
	one := `{"method":"m"}`
	for name, c := range map[string]struct {
		in   string
		code int
		says string
	}{
		"empty":         {`[]`, CodeInvalidRequest, "empty"},
		"too many":      {"[" + strings.Repeat(one+",", MaxBatch) + one + "]", CodeTooLarge, "at most 128"},
		"cut off":       {"[" + one, CodeParseError, "ends too early"},
		"two batches":   {"[" + one + "][" + one + "]", CodeParseError, "more than one JSON value"},
		"a duplicate":   {"[" + one + `,{"method":"m","method":"n"}]`, CodeParseError, "occurs twice"},
		"one too large": {"[" + one + "," + one + "]", CodeTooLarge, "values"},
	} {
		t.Run(name, func(t *testing.T) {
			lim := Limits{}
			if name == "one too large" {
				lim.Values = 8
			}
			elements, _, err := DecodeMessage([]byte(c.in), lim)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.code, e.Code)
			assert.Contains(t, e.Message, c.says)
			assert.Empty(t, elements)
		})
	}
}

func TestDecodeRequestKeepsAllMembers(t *testing.T) {
	r, err := decodeOne(`{"jsonrpc":"2.0","id":18446744073709551615,"method":"bdev_lvol_create","params":{"n":18446744073709551615,"f":1e3,"l":[null,true,"x"],"o":{}}}`, Limits{})
	require.NoError(t, err)
	assert.Equal(t, "bdev_lvol_create", r.Method)
	assert.Equal(t, json.RawMessage("18446744073709551615"), r.ID)
	assert.Equal(t, map[string]any{
		"n": json.Number("18446744073709551615"), "f": json.Number("1e3"),
		"l": []any{nil, true, "x"}, "o": map[string]any{},
	}, r.Params)
	out, err := Marshal(r.Params)
	require.NoError(t, err)
	assert.JSONEq(t, `{"n":18446744073709551615,"f":1e3,"l":[null,true,"x"],"o":{}}`, string(out))
}

func TestDecodeRequestPreservesIDs(t *testing.T) {
	for in, want := range map[string]string{
		`{"method":"m","id":1}`: "1", `{"method":"m","id":"a\"b"}`: `"a\"b"`, `{"method":"m","id":null}`: "null",
		`{"method":"m","id":1.50}`: "1.50", `{"method":"m","id":"<&>"}`: `"<&>"`,
	} {
		r, err := decodeOne(in, Limits{})
		require.NoError(t, err, in)
		assert.Equal(t, want, string(r.ID), in)
		assert.False(t, r.Notification())
	}
	r, err := decodeOne(`{"method":"m"}`, Limits{})
	require.NoError(t, err)
	assert.True(t, r.Notification())
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		code int
		says string
	}{
		"empty":              {``, CodeParseError, "empty or incomplete"},
		"cut off":            {`{"method":"m"`, CodeParseError, "ends too early"},
		"not JSON":           {`{method:1}`, CodeParseError, "not valid JSON at byte"},
		"two values":         {`{"method":"m"}{"method":"n"}`, CodeParseError, "more than one JSON value"},
		"trailing junk":      {`{"method":"m"}]`, CodeParseError, "not valid JSON"},
		"duplicate member":   {`{"method":"ok","method":"evil"}`, CodeParseError, "/method occurs twice"},
		"duplicate param":    {`{"method":"m","params":{"a":1,"a":2}}`, CodeParseError, "/params/a occurs twice"},
		"escaped duplicate":  {`{"method":"ok","\u006dethod":"evil"}`, CodeParseError, "occurs twice"},
		"wrong case":         {`{"Method":"m"}`, CodeInvalidRequest, `unknown member "Method"`},
		"both cases":         {`{"method":"m","METHOD":"n"}`, CodeInvalidRequest, `unknown member "METHOD"`},
		"extra member":       {`{"method":"m","x":1}`, CodeInvalidRequest, `unknown member "x"`},
		"scalar":             {`7`, CodeInvalidRequest, "not a number"},
		"no method":          {`{"id":1}`, CodeInvalidRequest, "method is missing"},
		"method not string":  {`{"method":7}`, CodeInvalidRequest, "method is missing, or not a string"},
		"old version":        {`{"jsonrpc":"1.0","method":"m"}`, CodeInvalidRequest, "2.0"},
		"version number":     {`{"jsonrpc":2.0,"method":"m"}`, CodeInvalidRequest, "2.0"},
		"params by position": {`{"method":"m","params":[1]}`, CodeInvalidParams, "by position"},
		"params scalar":      {`{"method":"m","params":"x"}`, CodeInvalidRequest, "not a string"},
		"id object":          {`{"method":"m","id":{}}`, CodeInvalidRequest, "id must be"},
		"bad UTF-8":          {"{\"method\":\"\xff\"}", CodeParseError, "UTF-8"},
		"lone surrogate":     {`{"method":"\ud800"}`, CodeParseError, "not valid JSON"},
		"NaN":                {`{"method":"m","params":{"a":NaN}}`, CodeParseError, "not valid JSON"},
		"leading zero":       {`{"method":"m","params":{"a":01}}`, CodeParseError, "not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeOne(c.in, Limits{})
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.code, e.Code)
			assert.Contains(t, e.Message, c.says)
		})
	}
}

func TestDecodeLimitsAreEnforced(t *testing.T) {
	// SPDK counts six values in {"a":[1]}: {, "a", [, 1, ], }.
	_, err := DecodeValue([]byte(`{"a":[1]}`), Limits{Values: 6, Depth: 2, Bytes: 9})
	require.NoError(t, err)
	for what, lim := range map[string]Limits{"values": {Values: 5}, "levels of nesting": {Depth: 1}, "bytes": {Bytes: 8}} {
		_, err := DecodeValue([]byte(`{"a":[1]}`), lim)
		var le *LimitError
		require.True(t, errors.As(err, &le), what)
		assert.Equal(t, what, le.What)
	}
	_, err = DecodeValue([]byte(strings.Repeat("[", 100000)), LimitsV2605)
	require.Error(t, err)

	_, err = decodeOne(`{"method":"m","params":{"a":[1]}}`, Limits{Values: 5})
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, CodeTooLarge, e.Code)
}

// A short text must not decode to a number so large that computations with it are slow.
func TestNumbersAreLimited(t *testing.T) {
	nines := strings.Repeat("9", maxDigits)
	for _, text := range []string{nines, "1e999", "-1.5E-999", "1e+0000000999", "[0e0]"} {
		_, err := DecodeValue([]byte(text), Limits{})
		require.NoError(t, err)
	}
	for _, text := range []string{nines + "9", "-" + nines, "0." + nines, "1e1000", "1E-1000", "[{\"a\":1e+01000}]", nines + "9e1"} {
		_, err := DecodeValue([]byte(text), Limits{})
		var limit *LimitError
		require.ErrorAs(t, err, &limit, text)
	}
	_, err := decodeOne(`{"method":"m","params":{"n":1e999999}}`, Limits{})
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, CodeTooLarge, e.Code)
	assert.Contains(t, e.Message, "more than 999 as a number's exponent")
}

func TestResponseHasResultOrError(t *testing.T) {
	for want, r := range map[string]Response{
		`{"jsonrpc":"2.0","id":7,"result":true}`:                                {ID: json.RawMessage("7"), Result: json.RawMessage("true")},
		`{"jsonrpc":"2.0","id":null,"result":null}`:                             {},
		`{"jsonrpc":"2.0","id":"<","error":{"code":-19,"message":"No device"}}`: {ID: json.RawMessage(`"<"`), Error: Errorf(-19, "No device")},
	} {
		out, err := r.MarshalJSON()
		require.NoError(t, err)
		assert.Equal(t, want, string(out))
	}
}

// FuzzDecodeValue checks a property that the proxy depends on: decoding, encoding and decoding a
// value again yields the same value.
func FuzzDecodeValue(f *testing.F) {
	for _, s := range []string{`{"method":"m","params":{"a":[1,2.5e3,null,true,"\u00e9"]}}`, `{"a":1,"a":2}`, `[[[]]]`, `"\ud83d\ude00"`, `-0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := DecodeValue(text, LimitsV2605)
		if err != nil {
			return
		}
		out, err := Marshal(v)
		require.NoError(t, err)
		again, err := DecodeValue(out, Limits{})
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}
