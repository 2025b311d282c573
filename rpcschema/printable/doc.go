// Package printable escapes characters that control a terminal, break a log line, or change the
// direction in which text is displayed. The names of a target's objects, its errors, and clients'
// input may contain any character.
//
// The package must not depend on the meaning of the text, or on where it is displayed.
package printable
