package rpcschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Replaces describes how a member relates to an older member that it replaced. At most one
// conversion is set. If none is set, only the name has changed.
type Replaces struct {
	Name string `json:"name"`
	// Factor means that old = new × Factor. An old value that is not a multiple of Factor is
	// rounded up.
	Factor uint64 `json:"factor"`
	// Times means that new = old × Times. Only old values can be converted.
	Times uint64 `json:"times"`
	// Log2Of means that new = log2(old / Log2Of), and 0 for 0. Only old values can be converted.
	Log2Of uint64 `json:"log2-of"`
	// List means that new is a list with old as its only item.
	List bool `json:"list"`
}

// BothWays reports whether the new form can also be converted to the old form, for releases that
// support only the old form.
func (rep *Replaces) BothWays() bool { return rep.Times == 0 && rep.Log2Of == 0 }

// Scales reports whether the two forms differ at most by a factor.
func (rep *Replaces) Scales() bool { return rep.BothWays() && !rep.List }

// inWords returns advice on how to replace the old form.
func (rep *Replaces) inWords(name string) string {
	switch {
	case rep.Factor > 0:
		return fmt.Sprintf("give %s instead, which is %s / %d", name, rep.Name, rep.Factor)
	case rep.Times > 0:
		return fmt.Sprintf("give %s instead, which is %s × %d", name, rep.Name, rep.Times)
	case rep.Log2Of > 0:
		return fmt.Sprintf("give %s instead, which is log2(%s / %d), and 0 for 0", name, rep.Name, rep.Log2Of)
	case rep.List:
		return fmt.Sprintf("give %s instead, a list", name)
	}
	return fmt.Sprintf("give %s instead", name)
}

// modern converts an old value to the new form. It returns a value of the wrong type unchanged,
// because validation will report the error.
func (rep *Replaces) modern(v any) (any, error) {
	if rep.List {
		return []any{v}, nil
	}
	number, n := wholeNumber(v)
	if n == nil {
		return v, nil
	}
	switch {
	case rep.Factor > 0:
		f := new(big.Int).SetUint64(rep.Factor)
		n.Add(n, f).Sub(n, big.NewInt(1)).Quo(n, f)
	case rep.Times > 0:
		n.Mul(n, new(big.Int).SetUint64(rep.Times))
	case rep.Log2Of > 0 && n.Sign() > 0:
		unit := new(big.Int).SetUint64(rep.Log2Of)
		quotient, rest := new(big.Int).QuoRem(n, unit, new(big.Int))
		power := quotient.BitLen() - 1
		if rest.Sign() != 0 || power < 1 || quotient.TrailingZeroBits() != uint(power) {
			return nil, fmt.Errorf("must be 0, or %d times a power of 2", 2*rep.Log2Of)
		}
		n.SetInt64(int64(power))
	default:
		return v, nil
	}
	return spelt(number, n)
}

// former converts a new value to the old form if possible.
func (rep *Replaces) former(v any) (any, error) {
	if rep.List {
		if list, ok := v.([]any); ok && len(list) == 1 {
			return list[0], nil
		}
		return nil, errors.New("the target's release accepts only one: send one call for each")
	}
	number, n := wholeNumber(v)
	if n == nil || rep.Factor == 0 {
		return v, nil
	}
	return spelt(number, n.Mul(n, new(big.Int).SetUint64(rep.Factor)))
}

// wholeNumber parses a non-negative integer, and returns nil for anything else.
func wholeNumber(v any) (json.Number, *big.Int) {
	number, ok := v.(json.Number)
	if !ok {
		return "", nil
	}
	n, ok := new(big.Int).SetString(number.String(), 10)
	if !ok || n.Sign() < 0 {
		return "", nil
	}
	return number, n
}

func spelt(given json.Number, n *big.Int) (any, error) {
	if !n.IsUint64() {
		return nil, fmt.Errorf("%s is too large", given)
	}
	return json.Number(n.String()), nil
}

// A change describes how to adapt a parameter, or a member of a parameter, to another release.
// Another member may have replaced it, later releases may imply some of its values, or earlier
// releases may have accepted its values in any letter case.
type change struct {
	path  []string // names of the objects that contain the member, outermost first
	old   Property // zero if there is no old member
	new   Property // zero if there is no successor
	any   Property // the member accepted in any letter case; zero if there is none
	texts []string // the values of member any
}

// changes lists all changes to a method's parameters between releases.
func (d *Document) changes(m *Method) []change {
	list := make(Properties, len(m.Params))
	for i, p := range m.Params {
		list[i] = Property{Name: p.Name, Schema: p.Schema}
	}
	return d.changesIn(list, nil, nil)
}

func (d *Document) changesIn(members Properties, path []string, above []*Schema) (found []change) {
	for _, p := range members {
		if p.Schema == nil {
			continue
		}
		if rep := p.Replaces; rep != nil && members.Get(rep.Name) != nil {
			found = append(found, change{path: path, new: p, old: Property{rep.Name, members.Get(rep.Name)}})
		}
		if len(p.DropIf) > 0 {
			found = append(found, change{path: path, old: p})
		}
		s := d.Resolve(p.Schema)
		if p.AnyCaseUntil.Known() && s != nil {
			c := change{path: path, any: p}
			for _, v := range s.Enum {
				c.texts = append(c.texts, fmt.Sprint(v))
			}
			found = append(found, c)
		}
		if s != nil && len(s.Properties) > 0 && !slices.Contains(above, s) {
			found = append(found, d.changesIn(s.Properties, append(slices.Clone(path), p.Name), append(slices.Clone(above), s))...)
		}
	}
	return found
}

// successor returns the member that replaced the one at path, with its Replaces, or nil if there is
// none.
func (m *Method) successor(path []string, name string) *Property {
	for _, c := range m.changes {
		if c.new.Schema != nil && c.old.Name == name && slices.Equal(c.path, path) {
			return &c.new
		}
	}
	return nil
}

// dotted returns a member's path with its parts separated by dots.
func (c *change) dotted(name string) string {
	return strings.Join(append(slices.Clone(c.path), name), ".")
}

func (c *change) pointer(name string) string {
	return pointer(append(slices.Clone(c.path), name))
}
