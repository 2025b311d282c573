package rpcschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An RPCPyWord describes how a parameter, or a member of a parameter, is written on the command
// line of SPDK's scripts/rpc.py. It has a position, an option, or flags.
type RPCPyWord struct {
	// Since and Until limit the word to some releases of rpc.py.
	Since Release `json:"since,omitzero"`
	Until Release `json:"until,omitzero"`
	// Position is the place among the positional arguments, counted from 1. Optional means that the
	// argument may be omitted.
	Position int  `json:"position,omitzero"`
	Optional bool `json:"optional,omitzero"`
	// Option is the option that precedes the value.
	Option string `json:"option,omitzero"`
	// Set and Clear are flags that mean true and false.
	Set   string `json:"set,omitzero"`
	Clear string `json:"clear,omitzero"`
	// Needed means that rpc.py requires the option, although SPDK does not require the parameter.
	Needed bool `json:"needed,omitzero"`
	// Hex means that rpc.py parses the number as hexadecimal.
	Hex bool `json:"hex,omitzero"`
	// List is the separator ("space" or "comma") between the items of a list that is a single word
	// on the command line.
	List string `json:"list,omitzero"`
	// If the list's items are objects, Item lists the names of their members, in order. On the
	// command line, colons separate the members' values.
	Item []string `json:"item,omitzero"`
	// MiBOf names the parameter that contains the block size. SPDK expects a number of blocks for
	// this parameter, but rpc.py expects a size in MiB.
	MiBOf string `json:"mib-of,omitzero"`
	// Only lists the numbers that rpc.py accepts; nil means all.
	Only []json.Number `json:"only,omitzero"`
	// Sends is the value that rpc.py sends if the argument is omitted. nil means that it sends no
	// value, or the schema's default.
	Sends json.RawMessage `json:"sends,omitzero"`
	// NotWith names a parameter whose option rpc.py cannot combine with this option.
	NotWith string `json:"not-with,omitzero"`
	// NonzeroUntil is the last release whose rpc.py does not send the value 0. An export for one
	// release contains Nonzero instead.
	NonzeroUntil Release `json:"nonzero-until,omitzero"`
	Nonzero      bool    `json:"nonzero,omitzero"`

	short string // an option or, for booleans, a flag
}

// RPCPyWords contains the forms of one word in different releases.
type RPCPyWords []RPCPyWord

// UnmarshalJSON parses one word or a list of words.
func (w *RPCPyWords) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]RPCPyWord)(w))
	}
	*w = make(RPCPyWords, 1)
	return json.Unmarshal(b, &(*w)[0])
}

// UnmarshalJSON parses a position, an option, or an object. It refuses unknown members.
func (w *RPCPyWord) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		return json.Unmarshal(b, &w.short)
	case '{':
		type members RPCPyWord
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		dec.DisallowUnknownFields()
		return dec.Decode((*members)(w))
	}
	return json.Unmarshal(b, &w.Position)
}

// Has reports whether release r of rpc.py has this form.
func (w *RPCPyWord) Has(r Release) bool { return Window{w.Since, w.Until}.Has(r) }

// RPCPyAt returns the words of rpc.py of release r, by parameter or by the path to a member, such
// as listen_address.traddr. It returns nil if rpc.py of that release cannot make the call, or if
// the release is unknown.
func (m *Method) RPCPyAt(r Release) (map[string]RPCPyWord, error) {
	if m.RPCPy == nil || !r.Known() || slices.Contains(m.RPCPyFails, r) {
		return nil, nil
	}
	words := map[string]RPCPyWord{}
	for _, path := range slices.Sorted(maps.Keys(m.RPCPy)) {
		s, err := m.at(path, r)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue // the parameter exists only in other releases
		}
		for _, w := range m.RPCPy[path] {
			if !w.Has(r) {
				continue
			}
			if _, twice := words[path]; twice {
				return nil, fmt.Errorf("x-spdk-rpcpy has two forms of %s for %s", path, r)
			}
			words[path] = w.at(r, s)
		}
	}
	return words, nil
}

// at returns w in the form that applies to release r, with abbreviations expanded.
func (w RPCPyWord) at(r Release, s *Schema) RPCPyWord {
	switch {
	case w.short != "" && s.Type.Main() == "boolean":
		w.Set = w.short
	case w.short != "":
		w.Option = w.short
	}
	w.Nonzero = w.NonzeroUntil.Known() && !w.NonzeroUntil.Before(r)
	w.Since, w.Until, w.NonzeroUntil, w.short = Release{}, Release{}, Release{}, ""
	return w
}

// at returns the schema of a parameter or member, or nil if release r does not support it.
func (m *Method) at(path string, r Release) (*Schema, error) {
	names := strings.Split(path, ".")
	p := m.Param(names[0])
	if p == nil {
		return nil, fmt.Errorf("x-spdk-rpcpy names no parameter: %q", path)
	}
	s := p.Schema
	known := s.Has(r)
	s = m.doc.Resolve(s)
	for _, name := range names[1:] {
		if s = s.Properties.Get(name); s == nil {
			return nil, fmt.Errorf("x-spdk-rpcpy names no member: %q", path)
		}
		known = known && s.Has(r)
		s = m.doc.Resolve(s)
	}
	if !known {
		return nil, nil
	}
	return s, nil
}
