package stream

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// outputs returns an output whose writes the test reads, and a function that adds a response.
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

// If SPDK responds to several calls at the same time, their responses are sent in one write,
// regardless of the order in which they are completed.
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

// A response is not delayed if SPDK has not responded to another message yet, or if the other
// message has already received a response because SPDK's was too late.
func TestResponsesDoNotWaitForALateOne(t *testing.T) {
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
