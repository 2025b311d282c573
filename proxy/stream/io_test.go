package stream

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
)

// outputs returns an output, the writes that it has made, and a function that adds a response.
func outputs(t *testing.T) (o *output, written *[]string, add func(text string, e *expected)) {
	written = &[]string{}
	o = &output{write: func(text []byte) error {
		*written = append(*written, string(text))
		return nil
	}}
	add = func(text string, e *expected) {
		o.add(response{[][]byte{[]byte(text)}, func() {}}, e, func() {}, func() { t.Error("cannot write") })
	}
	return o, written, add
}

// If SPDK responds to several calls at the same time, one write sends all of their responses, in
// whatever order they are completed.
func TestConcurrentResponsesAreWrittenTogether(t *testing.T) {
	o, written, add := outputs(t)
	var a, b, c, d expected
	for _, e := range []*expected{&a, &b, &c} {
		o.expect(e)
		o.expect(e) // the same message again
	}
	add("c", &c)
	add("d", &d)
	add("a", &a)
	assert.Empty(t, *written)
	add("b", &b)
	assert.Equal(t, []string{"cdab"}, *written)
}

// A response does not wait for another message to which SPDK has not responded yet, or to which the
// proxy itself has responded because SPDK's response was too late.
func TestResponsesDoNotWaitForALateResponse(t *testing.T) {
	o, written, add := outputs(t)
	var alone, late, next expected
	o.expect(&alone)
	add("alone,", &alone)
	add("late,", &late)
	o.expect(&late)
	add("next,", &next)
	add("pong", nil)
	assert.Equal(t, []string{"alone,", "late,", "next,", "pong"}, *written)
}

// After a failed write, nothing else is written, even if the response has further parts.
func TestFailedWriteEndsTheConnection(t *testing.T) {
	text := func(length int) []byte { return make([]byte, length) }
	for name, parts := range map[string][][]byte{
		"copied parts":               {text(10)},
		"a large part":               {text(directly)},
		"a small and a large part":   {text(10), text(directly)},
		"a full buffer":              {text(directly - 1), text(directly - 1), text(directly - 1)},
		"a large and a smaller part": {text(directly), text(10)},
	} {
		writes, failed := 0, 0
		o := &output{write: func([]byte) error { writes++; return errors.New("connection reset") }}
		for range 2 {
			o.add(response{parts, func() {}}, nil, func() {}, func() { failed++ })
		}
		assert.Equal(t, []int{1, 1}, []int{writes, failed}, name)
	}
}

// RFC 6455, section 5.2: the second byte contains lengths up to 125. 126 and 127 mean that the next
// two or eight bytes contain the length.
func TestFrameContainsItsLength(t *testing.T) {
	for length, header := range map[int]string{
		0: "8100", 125: "817d", 126: "817e007e", 65535: "817effff", 65536: "817f0000000000010000",
	} {
		parts := frame(websocket.TextMessage, [][]byte{make([]byte, length/2), make([]byte, length-length/2)})
		assert.Equal(t, header, hex.EncodeToString(parts[0]), length)
		assert.Len(t, slices.Concat(parts[1:]...), length)
	}
}
