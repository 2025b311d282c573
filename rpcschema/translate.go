package rpcschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
)

// A Translation is one parameter that was renamed for the target's release.
type Translation struct{ From, To string }

// Translate fits params to release r where a parameter took over from another
// (x-spdk-replaces): a newer name is written as its forerunner for a release
// that does not know it yet, and an older name as its successor, rounded up,
// for a release that no longer knows it. params itself is never changed. What
// has no counterpart stays as it is, for validation to refuse.
func (m *Method) Translate(params map[string]any, r Release) (map[string]any, []Translation, error) {
	if !r.Known() {
		return params, nil, nil
	}
	var done []Translation
	for _, p := range m.Params {
		rep := p.Schema.Replaces
		if rep == nil {
			continue
		}
		old := m.Param(rep.Name)
		if old == nil {
			continue
		}
		from, to, up := p.Name, rep.Name, false
		if !old.Schema.Has(r) && p.Schema.Has(r) {
			from, to, up = rep.Name, p.Name, true
		} else if p.Schema.Has(r) {
			continue
		}
		value, given := params[from]
		if !given {
			continue
		}
		if _, both := params[to]; both {
			return nil, nil, Violations{{Pointer: "/" + from, Message: fmt.Sprintf("%s and %s mean the same: give only %s", from, to, to)}}
		}
		value, err := scale(value, rep.Factor, up)
		if err != nil {
			return nil, nil, Violations{{Pointer: "/" + from, Message: err.Error()}}
		}
		if done == nil {
			params = maps.Clone(params)
		}
		delete(params, from)
		params[to] = value
		done = append(done, Translation{From: from, To: to})
	}
	return params, done, nil
}

// scale multiplies v by factor, or divides it rounding up. A value that is not
// a whole number is left alone, for validation to name.
func scale(v any, factor uint64, divide bool) (any, error) {
	number, ok := v.(json.Number)
	if !ok || factor == 0 {
		return v, nil
	}
	n, ok := new(big.Int).SetString(number.String(), 10)
	if !ok || n.Sign() < 0 {
		return v, nil
	}
	f := new(big.Int).SetUint64(factor)
	if divide {
		n.Add(n, f).Sub(n, big.NewInt(1)).Quo(n, f)
	} else {
		n.Mul(n, f)
	}
	if !n.IsUint64() {
		return nil, fmt.Errorf("%s is too large", number)
	}
	return json.Number(n.String()), nil
}

// Varies reports whether the parameters of m differ between releases.
func (m *Method) Varies() bool {
	for _, p := range m.Params {
		if p.Schema.Window != (Window{}) {
			return true
		}
	}
	return false
}

// Knows checks that release r has every parameter given.
func (m *Method) Knows(params map[string]any, r Release) error {
	var found Violations
	for name := range params {
		if p := m.Param(name); p != nil && !p.Schema.Has(r) {
			found = append(found, Violation{Pointer: "/" + name, Message: m.unknown("/"+name, r)})
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}
