package printable

import (
	"bytes"
	"io"
	"sync"
	"unicode/utf8"
)

// A Writer escapes the text written to it as [String] does, except for line breaks and tabs. JSON
// without control characters keeps its value, because other unsafe characters occur only within
// strings. A Writer is safe for concurrent use.
type Writer struct {
	// Raw is the underlying writer, for text that is already escaped, such as colored text.
	Raw io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character that the next Write will complete
}

// NewWriter returns a Writer on top of w, or w itself if w is already a Writer.
func NewWriter(w io.Writer) *Writer {
	if already, ok := w.(*Writer); ok {
		return already
	}
	return &Writer{Raw: w}
}

// Raw returns the underlying writer if w is a Writer, and w otherwise.
func Raw(w io.Writer) io.Writer {
	if escaping, ok := w.(*Writer); ok {
		return escaping.Raw
	}
	return w
}

// Write implements io.Writer. It calls Raw.Write once, or not at all if there is nothing to write.
// If that call fails, Write returns 0.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := p
	if len(w.rest) > 0 {
		text = append(w.rest, p...)
		w.rest = nil
	}
	if end := completeLength(text); end < len(text) {
		w.rest = bytes.Clone(text[end:])
		text = text[:end]
	}
	if len(text) == 0 {
		return len(p), nil
	}
	if mayNeedEscapes(text) && (!utf8.Valid(text) || bytes.ContainsFunc(text, unsafeInText)) {
		text = appendEscaped(make([]byte, 0, len(text)+16), text, unsafeInText)
	}
	if _, err := w.Raw.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// mayNeedEscapes returns false for text that consists of safe ASCII characters, such as most log
// lines. Decoding each of their characters would take up most of the time of a Write.
func mayNeedEscapes(text []byte) bool {
	for _, b := range text {
		if b-' ' > '~'-' ' && b != '\n' && b != '\t' {
			return true
		}
	}
	return false
}

// completeLength returns the length of text, without any incomplete character at its end.
func completeLength(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if start := len(text) - n; utf8.RuneStart(text[start]) {
			if !utf8.FullRune(text[start:]) {
				return start
			}
			break
		}
	}
	return len(text)
}
