package spdkrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResultsAreNotChanged(t *testing.T) {
	long := `"` + strings.Repeat("x", 3*longResponse) + `"`
	results := []string{
		`{"a": 18446744073709551615,"a":2}`, "\"not \xff UTF-8\"", `null`, `""`, `[ 1 , 2 ]`, long, `true`, long, `{"error":{"code":1}}`,
	}
	s := dial(t, listen(t, func(p *peer) {
		for _, result := range results {
			p.answer(p.read(), result)
		}
	}))
	for _, want := range results {
		var got json.RawMessage
		require.NoError(t, s.Call(t.Context(), "m", nil, &got))
		assert.Equal(t, want, string(got))
	}
}

// It does not matter how far the decoder has read ahead.
func TestLongResponsesAmongShortOnesAreReadCompletely(t *testing.T) {
	var results []string
	var all strings.Builder
	for i := range 24 {
		length := []int{440, 440, 440, 440, 0, 900, 300, 440}[i%8] << 10
		results = append(results, `"`+strings.Repeat(string(rune('a'+i%26)), length)+`"`)
		fmt.Fprintf(&all, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":%s}\n", i, results[i])
	}
	for seed := range uint64(8) {
		f := newSocketFraming(&pieces{text: all.String(), random: rand.New(rand.NewPCG(seed, 0))})
		for i, want := range results {
			m, err := f.read()
			require.NoError(t, err, "seed %d, response %d", seed, i)
			require.True(t, want == string(m.result), "seed %d, response %d", seed, i)
		}
	}
}

// pieces simulates a busy socket. A read sometimes fills the buffer, but usually returns fewer
// bytes.
type pieces struct {
	net.Conn
	text   string
	random *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.random.IntN(1<<20))], p.text)
	p.text = p.text[n:]
	return n, nil
}

func TestInvalidResponsesAreErrors(t *testing.T) {
	for name, response := range map[string]string{
		"no object": `7`, "no id": `{"result":1}`, "neither": `{"id":1}`, "both": `{"id":1,"result":1,"error":{"code":1,"message":"x"}}`, "no JSON": `{x`,
	} {
		s := dial(t, listen(t, func(p *peer) {
			p.read()
			p.write(response + "\n")
			_, _ = p.Read(make([]byte, 1)) // until the other side closes the connection
		}))
		require.ErrorIs(t, s.Call(t.Context(), "m", nil, nil), OutcomeUnknown, name)
	}
}

func TestResponseSizeIsLimited(t *testing.T) {
	s := dial(t, listen(t, func(p *peer) {
		p.read()
		part := bytes.Repeat([]byte("x"), 1<<20)
		p.write(`{"id":1,"result":"`)
		for range maxResponse>>20 + 1 {
			if _, err := p.Write(part); err != nil {
				return
			}
		}
	}))
	err := s.Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, OutcomeUnknown)
	require.ErrorContains(t, err, "longer than 32 MiB")
}

func TestPendingCallCanBeAwaitedAgain(t *testing.T) {
	answer := make(chan struct{})
	s := dial(t, listen(t, func(p *peer) {
		c := p.read()
		<-answer
		p.answer(c, "7")
	}))
	pending, err := s.Start(t.Context(), "m", nil)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var n int
	require.ErrorIs(t, pending.Wait(short, &n), OutcomeUnknown)
	close(answer)
	require.NoError(t, pending.Wait(t.Context(), &n))
	assert.Equal(t, 7, n)
}

func TestMethodNamesAreQuoted(t *testing.T) {
	names := make(chan string, 1)
	s := dial(t, listen(t, func(p *peer) {
		c := p.read()
		names <- c.Method
		p.answer(c, "true")
	}))
	require.NoError(t, s.Call(t.Context(), "a\"b\\\x01é", nil, nil))
	assert.Equal(t, "a\"b\\\x01é", <-names)
	require.ErrorIs(t, s.Call(t.Context(), "\xff", nil, nil), InvalidParams)
}
