package rpcschema

import "encoding/json"

// Allocates marks a number that determines how much memory SPDK allocates, or how often it loops,
// during a call. While SPDK allocates or loops, the whole target is blocked. The bounds apply to
// tenants. A parameter that tenants cannot send does not need bounds.
type Allocates struct {
	AtMost json.Number `json:"at-most"` // "" means no bound
	// AtLeast is the smallest allowed value; smaller values need more memory or calls. The value 0,
	// which means the default or never, is also allowed. "" means no bound.
	AtLeast json.Number `json:"at-least"`
}

// Bounded reports whether the number has a bound.
func (a *Allocates) Bounded() bool { return a != nil && a.AtMost+a.AtLeast != "" }

// Exceeded returns the bound that a value violates and the bound's kind ("at most" or "at least").
// It returns "" if the value is allowed or is not a number.
func (a *Allocates) Exceeded(v any) (kind string, bound json.Number) {
	number, ok := v.(json.Number)
	n, err := number.Float64()
	if !ok || !a.Bounded() {
		return "", ""
	}
	if most, none := a.AtMost.Float64(); none == nil && (err != nil || n > most) {
		return "at most", a.AtMost
	}
	if least, none := a.AtLeast.Float64(); none == nil && (err != nil || n > 0 && n < least) {
		return "at least", a.AtLeast
	}
	return "", ""
}
