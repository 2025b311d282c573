package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnsafeCharactersAreEscaped(t *testing.T) {
	unsafe := map[rune]bool{0x7f: true, 0x61c: true, 0x200e: true, 0x200f: true, 0x2028: true, 0x2029: true}
	for _, span := range [][2]rune{{0, 0x1f}, {0x80, 0x9f}, {0x202a, 0x202e}, {0x2066, 0x2069}} {
		for r := span[0]; r <= span[1]; r++ {
			unsafe[r] = true
		}
	}
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		if Unsafe(r) != unsafe[r] {
			t.Errorf("%U: unsafe is %v", r, Unsafe(r))
		}
		escaped := string(r)
		if unsafe[r] {
			escaped = fmt.Sprintf(`\u%04x`, r)
		}
		if got := String(string(r)); got != escaped {
			t.Errorf("%U: escaped as %q", r, got)
		}
	}
}

func TestUnsafeStringsAreEscaped(t *testing.T) {
	for given, shown := range map[string]string{
		"":                      "",
		"lvs0/vol1":             "lvs0/vol1",
		"Größe 日本 😀":            "Größe 日本 😀",
		"a\nb\tc":               `a\u000ab\u0009c`,
		"\x1b]0;title\a":        `\u001b]0;title\u0007`,
		"\u009b31m":             `\u009b31m`,
		"a\u202egpj.exe\u2066b": `a\u202egpj.exe\u2066b`,
		"bad \xff\xc3":          "bad \ufffd\ufffd",
		`a\u202e`:               `a\u202e`,
	} {
		assert.Equal(t, shown, String(given))
		assert.Equal(t, given == shown, Valid(given), "%q", given)
	}
}

func TestLookalikeNamesAreInvalid(t *testing.T) {
	for _, name := range []string{"", "lvs0/vol1", "two words", "Größe", "日本", "naïve"} {
		assert.True(t, ValidName(name), "%q", name)
	}
	for _, r := range "\u00a0\u00ad\u034f\u115f\u180e\u2003\u200b\u200d\u202e\u2060\u3000\u3164\ufe0f\ufeff\uffa0\U000e0061" {
		assert.False(t, ValidName("a"+string(r)+"b"), "%U", r)
	}
	for _, name := range []string{" a", "a ", "a\n", "\xff"} {
		assert.False(t, ValidName(name), "%q", name)
	}
}

func TestWriterKeepsLinesAndTabs(t *testing.T) {
	var b bytes.Buffer
	n, err := NewWriter(&b).Write([]byte("A\tB\n1\r\u202e\x1b[2J\xff\n"))
	require.NoError(t, err)
	assert.Equal(t, len("A\tB\n1\r\u202e\x1b[2J\xff\n"), n)
	assert.Equal(t, "A\tB\n1\\u000d\\u202e\\u001b[2J\ufffd\n", b.String())
}

// Programs copy text in blocks, and a block may end in the middle of a character.
func TestWriterJoinsSplitCharacters(t *testing.T) {
	const text = "a\u0085é日😀\u202e\u2028\xe2\x80z"
	var whole bytes.Buffer
	_, err := NewWriter(&whole).Write([]byte(text))
	require.NoError(t, err)
	assert.Equal(t, "a\\u0085é日😀\\u202e\\u2028\ufffd\ufffdz", whole.String())
	for size := 1; size < len(text); size++ {
		var b bytes.Buffer
		w := NewWriter(&b)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			written, err := w.Write([]byte(rest[:n]))
			require.NoError(t, err)
			require.Equal(t, n, written)
			rest = rest[n:]
		}
		assert.Equal(t, whole.String(), b.String(), "blocks of %d bytes", size)
	}
}

func TestWriterPreservesJSONValues(t *testing.T) {
	given := map[string]string{"na\u202eme": "a\u0085\u200f\\u202e\"\n\x00\u2066"}
	text, err := json.MarshalIndent(given, "", "\t")
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = NewWriter(&b).Write(text)
	require.NoError(t, err)
	var got map[string]string
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	assert.Equal(t, given, got)
	assert.False(t, strings.ContainsFunc(b.String(), unsafeInText))
}

type failing struct{ calls int }

func (f *failing) Write([]byte) (int, error) { f.calls++; return 0, errors.New("full") }

func TestWriterReportsErrors(t *testing.T) {
	f := &failing{}
	for _, line := range []string{"plain\n", "\u202e\n"} {
		n, err := NewWriter(f).Write([]byte(line))
		assert.Zero(t, n)
		assert.EqualError(t, err, "full")
	}
	assert.Equal(t, 2, f.calls)
}

func TestRawReturnsTheUnderlyingWriter(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	assert.Same(t, w, NewWriter(w))
	assert.Same(t, &b, Raw(w))
	assert.Same(t, &b, Raw(&b))
}

func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\u202e"), 1)
	f.Add([]byte("\xf0\x9f"), 3)
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		var b bytes.Buffer
		w := NewWriter(&b)
		at = min(max(at, 0), len(text))
		for _, part := range [][]byte{text[:at], text[at:], []byte("\n")} {
			_, err := w.Write(part)
			require.NoError(t, err)
		}
		assert.True(t, utf8.Valid(b.Bytes()))
		assert.False(t, strings.ContainsFunc(b.String(), unsafeInText), "%q", b.String())
		assert.True(t, Valid(String(string(text))))
	})
}
