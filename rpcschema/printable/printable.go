package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Unsafe reports whether a character must be escaped before it is displayed. Unsafe characters are
// control characters (C0, DEL and C1), bidirectional controls, and line and paragraph separators.
// [utf8.RuneError] is safe.
func Unsafe(r rune) bool {
	switch {
	case r < ' ', 0x7f <= r && r < 0xa0:
		return true
	case r < 0x600: // true of nearly all text in logs
		return false
	}
	return unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Valid reports whether s is UTF-8 without unsafe characters.
func Valid(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, Unsafe)
}

// ValidName reports whether s is valid and visibly different from all other names. A valid name has
// no invisible characters and no blanks other than spaces, and does not begin or end with a space.
func ValidName(s string) bool {
	return Valid(s) && !strings.ContainsFunc(s, invisible) && strings.TrimSpace(s) == s
}

func invisible(r rune) bool {
	return r > ' ' && unicode.In(r, unicode.Z, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// String returns s with each unsafe character replaced with \uXXXX, and invalid UTF-8 replaced with
// U+FFFD. It also escapes line breaks and tabs, so the result fits on one line and in one table
// cell.
func String(s string) string {
	if Valid(s) {
		return s
	}
	return string(appendEscaped(make([]byte, 0, len(s)+16), []byte(s), Unsafe))
}

// unsafeInText is like Unsafe, but allows line breaks and tabs.
func unsafeInText(r rune) bool { return r != '\n' && r != '\t' && Unsafe(r) }

func appendEscaped(to, text []byte, unsafe func(rune) bool) []byte {
	const digits = "0123456789abcdef"
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if unsafe(r) { // unsafe characters have at most four hexadecimal digits
			to = append(to, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		} else {
			to = utf8.AppendRune(to, r)
		}
		text = text[n:]
	}
	return to
}
