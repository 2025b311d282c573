package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// resources and units list the words allowed in annotations; areas/README.md defines them.
var (
	resources = strings.Fields("bdev lvstore lvstore-uuid lvol-name nqn host-nqn iqn initiator address file key crypto-key portal-group initiator-group auth-group ublk new-bdev new-lvstore new-nqn new-iqn new-key")
	units     = strings.Fields("bytes KiB MiB blocks us ms s ns ticks IO/s MiB/s percent")
	states    = strings.Fields("startup runtime")

	paramsForms = []string{rpcschema.ParamsNone, rpcschema.ParamsObject, rpcschema.ParamsEither}
)

// lint reports mistakes that the format of area files allows.
func lint(doc *rpcschema.Document) error {
	var found []error
	complain := func(where, format string, args ...any) {
		found = append(found, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
	}
	var walk func(where string, s *rpcschema.Schema, optional bool)
	walk = func(where string, s *rpcschema.Schema, optional bool) {
		if s == nil {
			return
		}
		if s.Ref != "" && doc.Schemas()[s.RefName()] == nil {
			complain(where, "$ref %q names no schema", s.Ref)
		}
		if s.Resource != "" && !slices.Contains(resources, s.Resource) {
			complain(where, "unknown x-spdk-resource %q", s.Resource)
		}
		if s.Opens != nil && (!slices.Contains(rpcschema.Openings, s.Opens.To) || len(s.Opens.If) == 0) {
			complain(where, "x-spdk-opens must name one of %s, and the values that open it", strings.Join(rpcschema.Openings, ", "))
		}
		if s.Opens != nil && s.Opens.Instead != nil && s.Opens.By(s.Opens.Instead) {
			complain(where, "x-spdk-opens: the value of instead also opens")
		}
		if s.Allocates != nil && (!slices.Contains(s.Type, "integer") || checkBounds(s) != nil) {
			complain(where, "x-spdk-allocates belongs to an integer, and its default and 0 are within the bounds: %v", checkBounds(s))
		}
		if s.Unit != "" && !slices.Contains(units, s.Unit) {
			complain(where, "unknown x-spdk-unit %q", s.Unit)
		}
		if s.Format != "" && s.Format != "uuid" && integerRanges[s.Format][0] == "" {
			complain(where, "unknown format %q", s.Format)
		}
		if len(s.DropIf) > 0 && !s.Until.Known() {
			complain(where, "x-spdk-drop-if is for members that later releases lack: x-spdk-until is missing")
		}
		if s.AnyCaseUntil.Known() && (doc.Resolve(s) == nil || len(doc.Resolve(s).Enum) == 0) {
			complain(where, "x-spdk-any-case-until belongs to an enum")
		}
		if s.RequiredUntil.Known() && !optional {
			complain(where, "x-spdk-required-until belongs to an optional parameter")
		}
		for value := range s.EnumSince {
			if !slices.ContainsFunc(s.Enum, func(v any) bool { return fmt.Sprint(v) == value }) {
				complain(where, "x-spdk-enum-since names no value: %q", value)
			}
		}
		for _, name := range s.Required {
			if s.Properties.Get(name) == nil {
				complain(where, "required member %q is not described", name)
			}
		}
		for _, p := range s.Properties {
			if rep := p.Replaces; rep != nil && s.Properties.Get(rep.Name) == nil {
				complain(where, "x-spdk-replaces names no member: %q", rep.Name)
			}
			if p.RequiredSince.Known() && !slices.Contains(s.Required, p.Name) {
				complain(where+"."+p.Name, "x-spdk-required-since belongs to a required parameter or member")
			}
			walk(where+"."+p.Name, p.Schema, false)
		}
		walk(where+"[]", s.Items, false)
		walk(where+".*", s.Additional.Schema, false)
		for i, v := range slices.Concat(s.OneOf, s.AnyOf) {
			walk(fmt.Sprintf("%s|%d", where, i), v, false)
		}
	}
	folded := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(doc.Schemas())) {
		walk(name, doc.Schemas()[name], false)
		if right := spelt(name); right != name {
			complain(name, "the schema must be named %s: spellings lists how its words are spelled", right)
		}
		if other := folded[strings.ToLower(name)]; other != "" {
			complain(name, "%s and %s differ by case only: give one of them another name", other, name)
		}
		folded[strings.ToLower(name)] = name
	}
	for _, m := range doc.Methods() {
		if m.Summary == "" || !strings.HasSuffix(m.Summary, ".") {
			complain(m.Name, "summary %q is not a sentence", m.Summary)
		}
		if len(m.State) == 0 {
			complain(m.Name, "x-spdk-state is missing")
		}
		for _, state := range m.State {
			if !slices.Contains(states, state) {
				complain(m.Name, "unknown x-spdk-state %q", state)
			}
		}
		if form := m.ParamsForm; form != "" && (!slices.Contains(paramsForms, form) || form == rpcschema.ParamsObject && len(m.Params) == 0) {
			complain(m.Name, "x-spdk-params must be one of %s, and object only where there are parameters: %q", strings.Join(paramsForms, ", "), form)
		}
		for _, e := range m.Errors {
			if e.Kind != "" && !slices.Contains(rpcschema.ErrorKinds, e.Kind) {
				complain(m.Name, "unknown x-spdk-kind %q of error %d", e.Kind, e.Code)
			}
			if e.Code == -1 && e.Kind == "" {
				complain(m.Name, "x-spdk-kind is missing: -1 means the wrong state or EPERM: say which")
			}
		}
		if m.DecodeError != jsonrpc.CodeInvalidParams && !slices.ContainsFunc(m.Errors, func(e rpcschema.Error) bool { return e.Code == m.DecodeError }) {
			complain(m.Name, "errors do not list %d, the x-spdk-decode-error", m.DecodeError)
		}
		if m.Relaxed != nil && (!m.Has(m.Relaxed.Since) || m.Relaxed.Until.Known() && m.Relaxed.Until.Before(m.Relaxed.Since)) {
			complain(m.Name, "x-spdk-relaxed must name releases that have the method, the first and perhaps the last")
		}
		if m.Stalls && m.Mutates {
			complain(m.Name, "x-spdk-stalls belongs to methods that only read")
		}
		if m.Pauses && m.Mutates { // calls to mutating methods are delayed anyway
			complain(m.Name, "x-spdk-pauses belongs to methods that only read")
		}
		if (m.Saved != "" || m.Removes) && !m.Mutates || m.Saved != "" && m.Saved != rpcschema.SavedFirst && m.Saved != rpcschema.SavedNever || m.Removes && m.Saved == rpcschema.SavedNever {
			complain(m.Name, "x-spdk-saved must be first or never, of a method that mutates; x-spdk-removes belongs to methods that mutate, and are saved: %q", m.Saved)
		}
		if m.Undoes != "" && (!m.Removes || !slices.ContainsFunc(doc.Methods(), func(o *rpcschema.Method) bool { return o.Name == m.Undoes })) {
			complain(m.Name, "x-spdk-undoes belongs to methods with x-spdk-removes, and names a method: %q", m.Undoes)
		}
		for _, name := range slices.Sorted(maps.Keys(m.ReadsIf)) {
			if !m.Mutates || m.Param(name) == nil || len(m.ReadsIf[name]) == 0 {
				complain(m.Name, "x-spdk-reads-if must name parameters, with values, of a method that mutates: %q", name)
			}
		}
		if m.ServedBy != "" && m.ServedBy != rpcschema.ServedByProxy {
			complain(m.Name, "unknown x-spdk-served-by %q", m.ServedBy)
		}
		if m.Result.Schema == nil {
			complain(m.Name, "result is missing")
		}
		walk(m.Name+" result", m.Result.Schema, false)
		optional := ""
		for _, p := range m.Params {
			where := m.Name + " " + p.Name
			if !p.Required {
				optional = p.Name
			} else if optional != "" {
				complain(where, "a required parameter comes after an optional one, %s: OpenRPC requires it to come first", optional)
			}
			if p.Schema == nil {
				complain(where, "schema is missing")
				continue
			}
			if p.Schema.RequiredSince.Known() && !p.Required {
				complain(where, "x-spdk-required-since belongs to a required parameter or member")
			}
			if p.Summary == "" {
				complain(where, "summary is missing")
			}
			if rep := p.Schema.Replaces; rep != nil && m.Param(rep.Name) == nil {
				complain(where, "x-spdk-replaces names no parameter: %q", rep.Name)
			}
			walk(where, p.Schema, !p.Required)
		}
		for _, group := range slices.Concat(m.OneOf, m.AnyOf) {
			for _, name := range group {
				if m.Param(name) == nil {
					complain(m.Name, "a group names no parameter: %q", name)
				}
			}
		}
	}
	lintRPCPy(doc, complain)
	slices.SortFunc(found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(found...)
}

// checkBounds returns an error if a number's default is outside the bounds of x-spdk-allocates.
func checkBounds(s *rpcschema.Schema) error {
	for _, v := range []any{s.Default, json.Number("0")} {
		if kind, bound := s.Allocates.Exceeded(v); kind != "" {
			return fmt.Errorf("%v is not %s %s", v, kind, bound)
		}
	}
	return nil
}
