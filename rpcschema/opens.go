package rpcschema

import (
	"slices"
	"strings"
)

// Opens describes values of a parameter that give others access to an object, beyond the hosts that
// are named for it, or to the data that it contained.
type Opens struct {
	To string `json:"to"` // one of Openings
	If []any  `json:"if"` // these values
	// Instead is the value that a tenant's call gets in place of one that opens; nil: the call is
	// refused.
	Instead any `json:"instead"`
}

// Openings are the kinds of access that parameters can open (x-spdk-opens).
var Openings = []string{"any-host", "deleted-data", "device-commands", "unauthenticated"}

// By reports whether a value opens the object. Text is compared in any case, as SPDK compares the
// words that stand for every host.
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

// OpensByDefault reports whether leaving the value out opens the object.
func (s *Schema) OpensByDefault() bool {
	return s.Opens != nil && s.Default != nil && s.Opens.By(s.Default)
}
