package rpcschema

import (
	"slices"
	"strings"
)

// Opens describes parameter values that let hosts other than the named ones access an object, or
// that give access to deleted data.
type Opens struct {
	To string `json:"to"` // one of Openings
	If []any  `json:"if"` // values that open the object
	// Instead replaces a value that opens the object in a tenant's call. If Instead is nil, the
	// call is refused.
	Instead any `json:"instead"`
}

// Openings lists the kinds of access that parameters can give (x-spdk-opens).
var Openings = []string{"any-host", "deleted-data", "device-commands", "unauthenticated"}

// By reports whether the value v opens the object. Strings are compared ignoring case, as SPDK
// compares the keywords for "any host".
func (o *Opens) By(v any) bool {
	return o != nil && slices.ContainsFunc(o.If, func(opening any) bool {
		given, isText := v.(string)
		word, isWord := opening.(string)
		if isText && isWord {
			return strings.EqualFold(given, word)
		}
		return v == opening
	})
}

// OpensByDefault reports whether the object is opened if the value is omitted.
func (s *Schema) OpensByDefault() bool {
	return s.Opens != nil && s.Default != nil && s.Opens.By(s.Default)
}
