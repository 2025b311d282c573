package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// lintRPCPy reports mistakes in the rpc.py words: words that do not name a parameter or do not fit
// their parameter's type, and required parameters without a word.
func lintRPCPy(doc *rpcschema.Document, complain func(where, format string, args ...any)) {
	for _, m := range doc.Methods() {
		if m.RPCPy == nil {
			if m.RPCPyFails != nil {
				complain(m.Name, "x-spdk-rpcpy-fails belongs to a method with x-spdk-rpcpy")
			}
			continue
		}
		if m.ServedBy != "" {
			complain(m.Name, "x-spdk-rpcpy belongs to a method of SPDK: rpc.py does not know this one")
		}
		used := map[string]bool{}
		for _, r := range releasesOf(m) {
			words, err := m.RPCPyAt(r)
			if err != nil {
				complain(m.Name, "%s", err)
				break
			}
			if words == nil {
				continue
			}
			l := rpcpyLint{method: m, doc: doc, release: r, words: words, complain: func(format string, args ...any) {
				complain(m.Name, "x-spdk-rpcpy at %s: %s", r, fmt.Sprintf(format, args...))
			}}
			l.check()
			for path := range words {
				used[path] = true
			}
		}
		for path := range m.RPCPy {
			if !used[path] {
				complain(m.Name, "x-spdk-rpcpy: no release has the word of %s", path)
			}
		}
	}
}

// releasesOf lists the releases that may change a method's parameters or words.
func releasesOf(m *rpcschema.Method) []rpcschema.Release {
	found := map[rpcschema.Release]bool{rpcschema.Oldest: true, rpcschema.Future: true}
	add := func(releases ...rpcschema.Release) {
		for _, r := range releases {
			found[r] = r.Known()
		}
	}
	add(m.Since, m.Until)
	add(m.RPCPyFails...)
	for _, words := range m.RPCPy {
		for _, w := range words {
			add(w.Since, w.Until, w.NonzeroUntil)
		}
	}
	for _, p := range m.Params {
		if p.Schema != nil {
			add(p.Schema.Since, p.Schema.Until, p.Schema.RequiredUntil)
		}
	}
	maps.DeleteFunc(found, func(r rpcschema.Release, known bool) bool { return !known || !m.Has(r) })
	return slices.SortedFunc(maps.Keys(found), func(a, b rpcschema.Release) int { return strings.Compare(a.String(), b.String()) })
}

// rpcpyLint checks a method's words at one release.
type rpcpyLint struct {
	method   *rpcschema.Method
	doc      *rpcschema.Document
	release  rpcschema.Release
	words    map[string]rpcschema.RPCPyWord
	complain func(format string, args ...any)
}

func (l rpcpyLint) check() {
	positions := map[int]string{}
	for _, path := range slices.Sorted(maps.Keys(l.words)) {
		w := l.words[path]
		if w.Position != 0 {
			if other := positions[w.Position]; other != "" {
				l.complain("%s and %s have the same position", other, path)
			}
			positions[w.Position] = path
		}
		l.checkWord(path, w)
	}
	optional := false
	for i := range len(positions) {
		path := positions[i+1]
		if path == "" {
			l.complain("no value has position %d", i+1)
			return
		}
		if optional && !l.words[path].Optional {
			l.complain("%s comes after a position that may stay empty", path)
		}
		optional = l.words[path].Optional
	}
	for _, p := range l.method.Params {
		if p.Schema != nil && p.Schema.Has(l.release) && (p.Required || l.method.RequiredAt(p.Name, l.release)) {
			l.checkCovered(p.Name, p.Schema)
		}
	}
}

// checkCovered finds required parameters, and required members of parameters, that the command
// cannot set.
func (l rpcpyLint) checkCovered(path string, s *rpcschema.Schema) {
	if _, there := l.words[path]; there {
		return
	}
	s = l.doc.Resolve(s)
	if len(s.Required) == 0 {
		l.complain("the required parameter %s has no word", path)
	}
	for _, name := range s.Required {
		l.checkCovered(path+"."+name, s.Properties.Get(name))
	}
}

func (l rpcpyLint) checkWord(path string, w rpcschema.RPCPyWord) {
	kinds := 0
	for _, given := range []bool{w.Position > 0, w.Option != "", w.Set != "" || w.Clear != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		l.complain("%s must have a position, an option, or flags", path)
	}
	for _, option := range []string{w.Option, w.Set, w.Clear} {
		if option != "" && !strings.HasPrefix(option, "-") {
			l.complain("%s: %q is not an option", path, option)
		}
		if strings.Contains(option, "_") {
			l.complain("%s: rpc.py before v26.05 replaces _ in %q by a dash: give the short option", path, option)
		}
	}
	if w.Optional && w.Position == 0 || w.Needed && w.Option == "" {
		l.complain("%s: optional belongs to a position, and needed to an option", path)
	}
	if w.NotWith != "" && l.method.RPCPy[w.NotWith] == nil {
		l.complain("%s: not-with names no word: %q", path, w.NotWith)
	}
	if w.MiBOf != "" && l.method.Param(w.MiBOf) == nil {
		l.complain("%s: mib-of names no parameter: %q", path, w.MiBOf)
	}
	s := l.schema(path)
	typ := s.Type.Main()
	switch flags, list := w.Set != "" || w.Clear != "", w.List != ""; {
	case flags != (typ == "boolean"):
		l.complain("%s: flags are for booleans", path)
	case list != (typ == "array"), list && w.List != "space" && w.List != "comma":
		l.complain("%s: a list needs the separator space or comma", path)
	case typ == "object", typ == "":
		l.complain("%s: give its members a word each", path)
	case (w.Hex || w.Nonzero || w.MiBOf != "" || w.Only != nil) && typ != "integer":
		l.complain("%s: hex, only, nonzero-until and mib-of are for integers", path)
	case list:
		l.checkItem(path, w, l.doc.Resolve(s.Items))
	}
}

func (l rpcpyLint) checkItem(path string, w rpcschema.RPCPyWord, item *rpcschema.Schema) {
	var members []string
	for _, p := range item.Properties {
		if p.Schema.Has(l.release) {
			members = append(members, p.Name)
		}
	}
	for _, name := range w.Item {
		if !slices.Contains(members, name) {
			l.complain("%s: item names no member: %q", path, name)
		}
	}
	if len(w.Item) == 0 && item.Type.Main() == "object" {
		l.complain("%s: the items are objects: say in item which members they have", path)
	}
}

// schema returns the schema at a path, which must exist.
func (l rpcpyLint) schema(path string) *rpcschema.Schema {
	names := strings.Split(path, ".")
	s := l.doc.Resolve(l.method.Param(names[0]).Schema)
	for _, name := range names[1:] {
		s = l.doc.Resolve(s.Properties.Get(name))
	}
	return s
}
