// Package jsonwalk goes through JSON that a target wrote without decoding it, and
// copies it with parts left out or replaced. It knows no methods and no schema.
package jsonwalk

import "github.com/go-json-experiment/json/jsontext"

// A Text is JSON that the target wrote, gone through without being decoded:
// what is not looked at costs no more than finding its end. Members may stand
// twice in it, and texts may hold any bytes, as SPDK's may. Of what is no JSON
// it only says so: callers ask Bad at the end.
type Text struct {
	S   string
	Bad bool
}

// A Type is the type of a JSON value.
type Type uint8

const (
	Null Type = iota
	Bool
	Number
	String
	Array
	Object
	Types // how many there are
)

// TypeAt is the type of the value that begins at i.
func (t *Text) TypeAt(i int) Type {
	switch t.at(i) {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	}
	return Number
}

// at is the byte at i, 0 beyond the end.
func (t *Text) at(i int) byte {
	if i < len(t.S) {
		return t.S[i]
	}
	return 0
}

// Space is where what follows the white space at i begins.
func (t *Text) Space(i int) int {
	for i < len(t.S) && (t.S[i] == ' ' || t.S[i] == '\n' || t.S[i] == '\t' || t.S[i] == '\r') {
		i++
	}
	return i
}

// fail records that the text is not JSON, and ends the walk.
func (t *Text) fail() int {
	t.Bad = true
	return len(t.S)
}

// Skip is the end of the value that begins at i.
func (t *Text) Skip(i int) int {
	switch t.at(i) {
	case '"':
		end, _ := t.skipText(i)
		return end
	case '{', '[':
		return t.skipNested(i)
	}
	begin := i
	for i < len(t.S) && !ends(t.S[i]) {
		i++
	}
	if i == begin {
		return t.fail()
	}
	return i
}

// ends says whether a byte ends a number or a word.
func ends(c byte) bool {
	switch c {
	case ',', ']', '}', ' ', '\n', '\t', '\r', ':', '"', '{', '[':
		return true
	}
	return false
}

func (t *Text) skipNested(i int) int {
	depth := 0
	for i < len(t.S) {
		switch t.S[i] {
		case '"':
			i, _ = t.skipText(i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return t.fail()
}

// skipText is the end of the text value that begins at i, and whether it stands
// for itself: nothing in it is escaped or beyond ASCII.
func (t *Text) skipText(i int) (end int, literal bool) {
	literal = true
	for i++; i < len(t.S); i++ {
		switch c := t.S[i]; {
		case c == '"':
			return i + 1, literal
		case c == '\\':
			literal = false
			i++
		case c >= 0x80:
			literal = false
		case c < ' ':
			return t.fail(), false
		}
	}
	return t.fail(), false
}

// TextAt reads the text value that begins at i. It is not sound when it is no
// text, or none that a strict decoder takes.
func (t *Text) TextAt(i int) (value string, sound bool, end int) {
	if t.at(i) != '"' {
		return "", false, t.Skip(i)
	}
	end, literal := t.skipText(i)
	if t.Bad {
		return "", false, end
	}
	if literal {
		return t.S[i+1 : end-1], true, end
	}
	decoded, err := jsontext.AppendUnquote(nil, t.S[i:end])
	return string(decoded), err == nil, end
}

// A Walk goes from one member of an object, or item of an array, to the next.
// After each, End must be set to where its value ends.
type Walk struct {
	*Text
	closing byte
	begun   bool

	Start int    // of the member or item
	Name  string // the member's
	Sound bool   // the member's name is
	Value int    // where its value begins
	End   int    // of what was gone through; in the end of the whole
}

// Walk begins within the object or array that begins at i.
func (t *Text) Walk(i int) Walk {
	w := Walk{Text: t, closing: '}', End: i + 1}
	if t.at(i) == '[' {
		w.closing = ']'
	}
	return w
}

// Next goes on to the next member or item, and is false at the end: Start is
// then where the bracket closes.
func (w *Walk) Next() bool {
	i := w.Space(w.End)
	c := w.at(i)
	if w.Bad {
		return false
	}
	if c == w.closing {
		w.Start, w.End = i, i+1
		return false
	}
	if w.begun {
		if c != ',' {
			w.Start, w.End = w.fail(), len(w.S)
			return false
		}
		i = w.Space(i + 1)
	}
	w.begun, w.Start, w.Value = true, i, i
	if w.closing == '}' {
		if w.at(i) != '"' {
			w.Start, w.End = w.fail(), len(w.S)
			return false
		}
		w.Name, w.Sound, i = w.TextAt(i)
		if i = w.Space(i); w.at(i) != ':' {
			w.Start, w.End = w.fail(), len(w.S)
			return false
		}
		w.Value = w.Space(i + 1)
	}
	return true
}
