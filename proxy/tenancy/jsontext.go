package tenancy

import "github.com/go-json-experiment/json/jsontext"

// A jsonText is JSON that the target wrote, gone through without being decoded:
// what is not looked at costs no more than finding its end. Members may stand
// twice in it, and texts may hold any bytes, as SPDK's may. Of what is no JSON
// it only says so: whoever goes through it asks bad in the end.
type jsonText struct {
	s   string
	bad bool
}

// A jsonType is the type of a JSON value.
type jsonType uint8

const (
	isNull jsonType = iota
	isBool
	isNumber
	isString
	isArray
	isObject
	jsonTypes // how many there are
)

// typeAt is the type of the value that begins at i.
func (t *jsonText) typeAt(i int) jsonType {
	switch t.at(i) {
	case '{':
		return isObject
	case '[':
		return isArray
	case '"':
		return isString
	case 't', 'f':
		return isBool
	case 'n':
		return isNull
	}
	return isNumber
}

// at is the byte at i, 0 beyond the end.
func (t *jsonText) at(i int) byte {
	if i < len(t.s) {
		return t.s[i]
	}
	return 0
}

// space is where what follows the white space at i begins.
func (t *jsonText) space(i int) int {
	for i < len(t.s) && (t.s[i] == ' ' || t.s[i] == '\n' || t.s[i] == '\t' || t.s[i] == '\r') {
		i++
	}
	return i
}

// fail notes that this is no JSON, and ends whatever goes through it.
func (t *jsonText) fail() int {
	t.bad = true
	return len(t.s)
}

// skip is the end of the value that begins at i.
func (t *jsonText) skip(i int) int {
	switch t.at(i) {
	case '"':
		end, _ := t.skipText(i)
		return end
	case '{', '[':
		return t.skipNested(i)
	}
	begin := i
	for i < len(t.s) && !ends(t.s[i]) {
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

func (t *jsonText) skipNested(i int) int {
	depth := 0
	for i < len(t.s) {
		switch t.s[i] {
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
func (t *jsonText) skipText(i int) (end int, literal bool) {
	literal = true
	for i++; i < len(t.s); i++ {
		switch c := t.s[i]; {
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

// textAt reads the text value that begins at i. It is not sound when it is no
// text, or none that a strict decoder takes.
func (t *jsonText) textAt(i int) (value string, sound bool, end int) {
	if t.at(i) != '"' {
		return "", false, t.skip(i)
	}
	end, literal := t.skipText(i)
	if t.bad {
		return "", false, end
	}
	if literal {
		return t.s[i+1 : end-1], true, end
	}
	decoded, err := jsontext.AppendUnquote(nil, t.s[i:end])
	return string(decoded), err == nil, end
}

// A walk goes from one member of an object, or item of an array, to the next.
// After each, end must be set to where its value ends.
type walk struct {
	*jsonText
	closing byte
	begun   bool

	start int    // of the member or item
	name  string // the member's
	sound bool   // the member's name is
	value int    // where its value begins
	end   int    // of what was gone through; in the end of the whole
}

// walk begins within the object or array that begins at i.
func (t *jsonText) walk(i int) walk {
	w := walk{jsonText: t, closing: '}', end: i + 1}
	if t.at(i) == '[' {
		w.closing = ']'
	}
	return w
}

// next goes on to the next member or item, and is false at the end: start is
// then where the bracket closes.
func (w *walk) next() bool {
	i := w.space(w.end)
	c := w.at(i)
	if w.bad {
		return false
	}
	if c == w.closing {
		w.start, w.end = i, i+1
		return false
	}
	if w.begun {
		if c != ',' {
			w.start, w.end = w.fail(), len(w.s)
			return false
		}
		i = w.space(i + 1)
	}
	w.begun, w.start, w.value = true, i, i
	if w.closing == '}' {
		if w.at(i) != '"' {
			w.start, w.end = w.fail(), len(w.s)
			return false
		}
		w.name, w.sound, i = w.textAt(i)
		if i = w.space(i); w.at(i) != ':' {
			w.start, w.end = w.fail(), len(w.s)
			return false
		}
		w.value = w.space(i + 1)
	}
	return true
}
