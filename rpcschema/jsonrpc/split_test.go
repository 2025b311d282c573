package jsonrpc

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSplitterSeparatesMessages(t *testing.T) {
	const one, two, three = `{"method":"a","params":{"x":"}]{[\"\\"}}`, `[{"a":[1,{}]},"\\"]`, `{}`
	stream := " \n" + one + "\r\n" + two + "\t" + three + `{"cut":"off}`
	for _, step := range []int{1, 2, 7, len(stream)} {
		var s Splitter
		var text []byte
		var found []string
		for rest := []byte(stream); len(rest) > 0; {
			n := min(step, len(rest))
			text, rest = append(text, rest[:n]...), rest[n:]
			for {
				text = TrimSpace(text)
				n, err := s.Next(text)
				require.NoError(t, err)
				if n == 0 {
					break
				}
				found, text = append(found, string(text[:n])), text[n:]
			}
		}
		assert.Equal(t, []string{one, two, three}, found, step)
		assert.Equal(t, `{"cut":"off}`, string(text))
	}
}

func TestSplitterRejectsInvalidInput(t *testing.T) {
	for _, text := range []string{"5", `"x"`, "null", "GET / HTTP/1.1", "]", "}", "\x00{}", "\ufeff{}"} {
		_, err := new(Splitter).Next([]byte(text))
		var e *Error
		require.ErrorAs(t, err, &e, text)
		assert.Equal(t, CodeInvalidRequest, e.Code)
	}
}

// FuzzSplitter checks that a message that DecodeMessage accepts is found with its exact length, no
// matter what follows it. Otherwise, a client could hide one request in another.
func FuzzSplitter(f *testing.F) {
	for _, text := range []string{`{"method":"m","params":{"a":["}","\\\""]}}`, `[{"method":"a"},{"method":"b"}]`, `{"a":"\\"}`, `{"a":1]`} {
		f.Add([]byte(text), []byte(`{"method":"next"}`))
	}
	f.Fuzz(func(t *testing.T, text, after []byte) {
		text = TrimSpace(text)
		if _, _, err := DecodeMessage(text, LimitsV2605); err != nil {
			return
		}
		text = bytes.TrimRight(text, " \n\r\t")
		if !strings.ContainsAny(string(text[:1]), "{[") {
			return
		}
		n, err := new(Splitter).Next(append(bytes.Clone(text), after...))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	})
}
