package rpcschema

import (
	"slices"
	"strings"
)

// Opens describes parameter values that give others access to an object, beyond the hosts named for
// it, or to the data that it contained.
type Opens struct {
	To string `json:"to"` // one of Openings
	If []any  `json:"if"` // these values
	// Instead replaces an opening value in a tenant's call; if it is nil, the call is refused.
	Instead any `json:"instead"`
}

// Openings lists the kinds of access that parameters can open (x-spdk-opens).
var Openings = []string{"any-host", "deleted-data", "device-commands", "unauthenticated"}

// By reports whether a value opens the object. Strings are compared ignoring case, as SPDK compares
// the words that mean every host.
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

// OpensByDefault reports whether omitting the value opens the object.
func (s *Schema) OpensByDefault() bool {
	return s.Opens != nil && s.Default != nil && s.Opens.By(s.Default)
}
