package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// completeValues completes a flag with a fixed set of values.
func completeValues(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
}

// completeUsers completes --as with the users in the configuration file. If the file cannot be
// read, completeUsers offers no users.
func (o *policyOptions) completeUsers(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if d, err := o.load(); err == nil {
		for _, u := range d.Users() {
			names = append(names, cobra.CompletionWithDesc(u.Name, strings.Join(u.Roles, ", ")))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeCall completes methods, then a method's parameters and their members, and then the values
// of parameters with a fixed set of values.
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

// given reports whether one of the arguments already sets this parameter or member.
func given(arg, name string) bool {
	rest, ok := strings.CutPrefix(arg, name)
	return ok && (strings.HasPrefix(rest, "=") || strings.HasPrefix(rest, ":="))
}

// membersAt returns the parameters of a method or, if within is not empty, the members of the
// object at that path. A path in within ends with a dot.
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

// memberAt returns the schema of a parameter or nested member, or nil if there is none.
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

// valuesOf returns the possible values of a schema that is a boolean, an enum, or a list of either;
// otherwise, it returns nil. If the value is written as JSON, valuesOf returns values only for
// booleans.
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
