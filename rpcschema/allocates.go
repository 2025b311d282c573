package rpcschema

import "encoding/json"

// Allocates marks a number in proportion to which SPDK allocates memory or loops while executing
// the call, which blocks the whole target. The bounds apply to tenants. A parameter that no tenant
// can send may have none.
type Allocates struct {
	AtMost  json.Number `json:"at-most"`  // "": no bound
	AtLeast json.Number `json:"at-least"` // smaller numbers take more memory; 0, the default, is permitted. "": no bound
}

// Bounded reports whether there is a bound.
func (a *Allocates) Bounded() bool { return a != nil && a.AtMost+a.AtLeast != "" }

// Exceeded returns the bound that a value violates and the bound's kind ("at most" or "at least"),
// or "" if the value is permitted or is not a number.
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
