package rpcschema

import (
	"encoding/json"
	"fmt"
	"sync"
	"unsafe"

	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// Discloses reports whether a method's result may contain secrets.
func (d *Document) Discloses(m *Method) bool { return d.MayHaveSecrets(m.Result.Schema) }

// MayHaveSecrets reports whether values of a schema may be secrets or contain secrets.
func (d *Document) MayHaveSecrets(s *Schema) bool { return d.secret(s, nil) }

// secret reports whether a schema describes a sensitive value at any depth. within lists the
// enclosing shared schemas, because schemas may be recursive.
func (d *Document) secret(s *Schema, within []string) bool {
	if s == nil {
		return false
	}
	if s.Sensitive {
		return true
	}
	if name := s.RefName(); name != "" {
		for _, outer := range within {
			if outer == name {
				return false
			}
		}
		return d.secret(d.schemas[name], append(within, name))
	}
	for _, p := range s.Properties {
		if d.secret(p.Schema, within) {
			return true
		}
	}
	for _, variants := range [][]*Schema{s.OneOf, s.AnyOf, {s.Items, s.Additional.Schema}} {
		for _, v := range variants {
			if d.secret(v, within) {
				return true
			}
		}
	}
	return false
}

// RedactResult returns a copy of a result without secrets. It replaces a secret string with
// [Redacted], and any other secret with null. It omits members that the schema does not describe,
// because these may be secrets. Everything else remains exactly as the target wrote it, in the same
// order. If a member is duplicated, every occurrence is redacted.
func (d *Document) RedactResult(method string, result json.RawMessage) (json.RawMessage, error) {
	m := d.byName[method]
	if m == nil {
		return nil, fmt.Errorf("redact a result: %w", &UnknownMethodError{Method: method})
	}
	// Do not copy the bytes. They are never written to, and a copy would double the memory needed.
	r := &redaction{Edit: jsonwalk.NewEdit(unsafe.String(unsafe.SliceData(result), len(result)))}
	r.Expect(len(result) + len(result)/8)
	end := r.value(d.redactions.of(d, m), r.Space(0))
	if r.Bad || r.Space(end) != len(result) {
		return nil, fmt.Errorf("redact the result of %s: it is not JSON", method)
	}
	return r.Kept(result), nil
}

// A redaction is the state of the redaction of one result.
type redaction struct{ jsonwalk.Edit }

const quotedRedacted = `"` + Redacted + `"`

// value redacts the value that begins at i, and returns its end.
func (r *redaction) value(p *redactPlan, i int) (end int) {
	t := r.TypeAt(i)
	switch {
	case p == nil && t == jsonwalk.String:
		end = r.Skip(i)
		r.replace(i, end, quotedRedacted)
		return end
	case p == nil:
		end = r.Skip(i)
		r.replace(i, end, "null")
		return end
	case t == jsonwalk.Object:
		return r.members(p, i)
	case t == jsonwalk.Array:
		w := r.Walk(i)
		for w.Next() {
			w.End = r.value(p.items, w.Value)
		}
		return w.End
	}
	return r.Skip(i)
}

func (r *redaction) replace(from, to int, with string) {
	if r.S[from:to] != with {
		r.Replace(from, to, with)
	}
}

func (r *redaction) members(p *redactPlan, i int) (end int) {
	w := r.Walk(i)
	c := r.Content(w.End)
	for w.Next() {
		plan, known := p.member(w.Name)
		if !known || !w.Sound {
			c.Gap, w.End = true, r.Skip(w.Value)
			continue
		}
		c.Keep(w.Start)
		w.End = r.value(plan, w.Value)
		c.End = w.End
	}
	c.Close(w.Start)
	return w.End
}

// A redactPlan lists the parts of a value that may be shown. It covers all forms of the value. A
// nil plan shows nothing.
type redactPlan struct {
	members map[string]*redactPlan
	others  *redactPlan // plan for members that the schema does not name
	open    bool        // the schema describes members that it does not name
	items   *redactPlan
}

func (p *redactPlan) member(name string) (plan *redactPlan, known bool) {
	if plan, known = p.members[name]; known {
		return plan, true
	}
	return p.others, p.open
}

// redactPlans creates each plan on first use.
type redactPlans struct {
	mu   sync.Mutex
	made map[*Schema]*redactPlan // plans of results
}

func (r *redactPlans) of(d *Document, m *Method) *redactPlan {
	r.mu.Lock()
	defer r.mu.Unlock()
	plan, ok := r.made[m.Result.Schema]
	if !ok {
		if r.made == nil {
			r.made = map[*Schema]*redactPlan{}
		}
		maker := &redactPlanner{document: d, made: map[string]*redactPlan{}}
		plan = maker.of([]*Schema{m.Result.Schema})
		r.made[m.Result.Schema] = plan
	}
	return plan
}

// A redactPlanner creates each plan only once, because a schema may be recursive.
type redactPlanner struct {
	document *Document
	made     map[string]*redactPlan
}

// of returns the plan for a value that may have several forms. The value is secret if any of its
// forms is.
func (r *redactPlanner) of(use []*Schema) *redactPlan {
	forms, sensitive := r.document.forms(use, 0)
	if sensitive || len(forms) == 0 {
		return nil
	}
	var key string
	for _, s := range forms {
		key += fmt.Sprintf("%p ", s)
	}
	if plan, ok := r.made[key]; ok {
		return plan
	}
	plan := &redactPlan{members: map[string]*redactPlan{}}
	r.made[key] = plan
	var items, others []*Schema
	for _, s := range forms {
		if s.Items != nil {
			items = append(items, s.Items)
		}
		if s.Additional.Schema != nil {
			others = append(others, s.Additional.Schema)
		}
		for _, p := range s.Properties {
			if _, made := plan.members[p.Name]; !made {
				plan.members[p.Name] = r.of(membersOf(forms, p.Name))
			}
		}
	}
	plan.items = r.of(items)
	plan.open, plan.others = len(others) > 0, r.of(others)
	return plan
}

// forms resolves references and unions in the schemas, and reports whether any of them is
// sensitive.
func (d *Document) forms(use []*Schema, depth int) (forms []*Schema, sensitive bool) {
	for _, s := range use {
		if s == nil || depth > 32 {
			return nil, true
		}
		sensitive = sensitive || s.Sensitive
		inner := append(append([]*Schema(nil), s.OneOf...), s.AnyOf...)
		if s.Ref != "" {
			inner = append(inner, d.schemas[s.RefName()])
		} else {
			forms = append(forms, s)
		}
		more, secret := d.forms(inner, depth+1)
		forms, sensitive = append(forms, more...), sensitive || secret
	}
	return forms, sensitive
}

// membersOf returns the schemas of the named member in all forms of an object.
func membersOf(forms []*Schema, name string) (found []*Schema) {
	for _, s := range forms {
		if p := s.Properties.Get(name); p != nil {
			found = append(found, p)
		}
	}
	return found
}
