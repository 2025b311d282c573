package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// completeValues offers the values of a flag.
func completeValues(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

// completeUsers offers the users in the configuration file for --as. If the file cannot be read,
// completeUsers offers no users.
func (o *policyOptions) completeUsers(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if d, err := o.load(); err == nil {
		for _, u := range d.Users() {
			names = append(names, cobra.CompletionWithDesc(u.Name, strings.Join(u.Roles, ", ")))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeCall offers methods, then the parameters of a method and their members, and then the
// values of a parameter that has a fixed set of values.
func completeCall(_ *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var offers []cobra.Completion
	if len(args) == 0 {
		for _, m := range rpcschema.Default().Methods() {
			offers = append(offers, cobra.CompletionWithDesc(m.Name, m.Summary))
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
	m, ok := rpcschema.Default().Method(args[0])
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if name, _, hasValue := strings.Cut(word, "="); hasValue {
		name, isJSON := strings.CutSuffix(name, ":")
		mark := "="
		if isJSON {
			mark = ":="
		}
		for _, v := range valuesOf(memberAt(m, strings.Split(name, ".")), isJSON) {
			offers = append(offers, name+mark+v)
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
	within := ""
	if i := strings.LastIndexByte(word, '.'); i >= 0 {
		within = word[:i+1]
	}
	for _, p := range membersAt(m, within) {
		name := within + p.Name
		if !slices.ContainsFunc(args[1:], func(arg string) bool { return given(arg, name) && p.Type.Main() != "array" }) {
			offers = append(offers, cobra.CompletionWithDesc(name+continuation(p.Schema), p.Description))
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// given reports whether an argument sets a parameter or member.
func given(arg, name string) bool {
	rest, ok := strings.CutPrefix(arg, name)
	return ok && (strings.HasPrefix(rest, "=") || strings.HasPrefix(rest, ":="))
}

// membersAt returns the parameters of a method, or the members of the object that the path within
// names. If within is not empty, it ends with a dot.
func membersAt(m *rpcschema.Method, within string) (list rpcschema.Properties) {
	if within != "" {
		s := memberAt(m, strings.Split(strings.TrimSuffix(within, "."), "."))
		if s == nil {
			return nil
		}
		for _, p := range s.Properties {
			list = append(list, rpcschema.Property{Name: p.Name, Schema: rpcschema.Default().Resolve(p.Schema)})
		}
		return list
	}
	for _, p := range m.Params {
		s := *rpcschema.Default().Resolve(p.Schema)
		s.Description = p.Summary
		list = append(list, rpcschema.Property{Name: p.Name, Schema: &s})
	}
	return list
}

// memberAt returns the schema of a parameter or of one of its members, or nil if there is none.
func memberAt(m *rpcschema.Method, path []string) *rpcschema.Schema {
	members := membersAt(m, "")
	for i, name := range path {
		s := members.Get(name)
		if s == nil {
			return nil
		}
		s = rpcschema.Default().Resolve(s)
		if i == len(path)-1 {
			return s
		}
		members = s.Properties
	}
	return nil
}

// continuation returns the text after a parameter's name: a dot for the members of an object, :=
// for JSON, or = for a value.
func continuation(s *rpcschema.Schema) string {
	kind := s.Type.Main()
	switch {
	case s.Sensitive:
		return "=@" // the secret is read from a file
	case kind == "object" && len(s.Properties) > 0:
		return "."
	case kind == "object", kind == "array" && slices.Contains([]string{"object", "array"}, rpcschema.Default().Resolve(s.Items).Type.Main()):
		return ":="
	}
	return "="
}

// valuesOf returns the values that a schema allows, if it is a boolean or an enum, or a list of
// these. Otherwise, valuesOf returns nil. If the value is written as JSON, only a boolean has
// values.
func valuesOf(s *rpcschema.Schema, isJSON bool) (values []string) {
	switch {
	case s == nil:
		return nil
	case s.Type.Main() == "array" && !isJSON:
		return valuesOf(rpcschema.Default().Resolve(s.Items), false)
	case s.Type.Main() == "boolean":
		return []string{"false", "true"}
	case isJSON:
		return nil // a shell would remove the quotes around a string
	}
	for _, v := range s.Enum {
		values = append(values, fmt.Sprint(v))
	}
	return values
}
