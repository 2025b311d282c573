// Package printable escapes characters that control a terminal, break a log line, or change the
// order in which text is shown. The names of a target's objects, its errors, and what clients send
// may contain any character.
//
// The package must not know which text it escapes, or where the text is shown.
package printable
