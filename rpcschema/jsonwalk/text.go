// Package jsonwalk walks through JSON written by a target without decoding it, and copies it with
// parts omitted or replaced. The package must not depend on methods or the schema.
package jsonwalk

import "github.com/go-json-experiment/json/jsontext"

// A Text is JSON written by the target. Walking does not decode values. To skip a value, it only
// has to find the value's end. The text may contain duplicate members, and its strings may contain
// any bytes, because SPDK writes such results. If the text is not JSON, the walk ends, and Bad
// returns true.
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
	Types // number of types
)

// TypeAt returns the type of the value that begins at i.
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

// at returns the byte at i, or 0 beyond the end.
func (t *Text) at(i int) byte {
	if i < len(t.S) {
		return t.S[i]
	}
	return 0
}

// Space returns the offset after any white space at i.
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

// Skip returns the end of the value that begins at i.
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

// ends reports whether a byte ends a number or a keyword.
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

// skipText returns the end of the string that begins at i, and whether it is literal: pure ASCII
// without escapes.
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

// TextAt returns the string that begins at i. sound is false if the value is not a string, or if a
// strict decoder would refuse the string.
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

// A Walk iterates over the members of an object, or the items of an array. After each member or
// item, the caller must set End to the end of the value.
type Walk struct {
	*Text
	closing byte
	begun   bool

	Start int    // offset of the member or item
	Name  string // name of the member
	Sound bool   // the member's name is a valid string
	Value int    // offset of the member's value
	End   int    // end of the text walked so far; after the walk, the end of the object or array
}

// Walk begins to walk through the object or array at i.
func (t *Text) Walk(i int) Walk {
	w := Walk{Text: t, closing: '}', End: i + 1}
	if t.at(i) == '[' {
		w.closing = ']'
	}
	return w
}

// Next advances to the next member or item. It returns false at the end; Start is then the offset
// of the closing bracket.
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
