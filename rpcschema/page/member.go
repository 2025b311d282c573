package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// words contains the terms for required and for optional values. "" means that no term is printed.
// Among parameters, required values are marked; in results, optional ones are.
type words struct{ required, optional string }

// need returns the term for a required value, or describes the default of an optional value.
func need(required bool, s *rpcschema.Schema, must, may string) string {
	switch {
	case required:
		return must
	case s.Default != nil && s.Default != "":
		return fmt.Sprintf("default %v", s.Default)
	default:
		return may
	}
}

// An entry describes one value: its path and type, whether it is required, and further facts.
type entry struct{ name, typ, need, text string }

// entry writes one value.
func (p *page) entry(name, need string, s *rpcschema.Schema, text string) {
	resolved := p.doc.Resolve(s)
	text = cmp.Or(text, s.Description, resolved.Description)
	p.write(entry{name, p.typeOf(s), need, strings.Join(strings.Fields(strings.Join(append([]string{text}, p.facts(s, resolved)...), " ")), " ")})
}

// terminal writes an entry for a terminal, with name, type and need on one line, followed by the
// text.
func (p *page) terminal(e entry) {
	line := fmt.Sprintf("  %-30s %-22s %s", e.name, e.typ, e.need)
	if e.name == "" {
		line = "  " + e.typ
	}
	p.b.WriteString(strings.TrimRight(line, " ") + "\n")
	p.wrap("      ", e.text)
}

// facts returns, as sentences, the facts about a value that the schema records.
func (p *page) facts(use, s *rpcschema.Schema) (facts []string) {
	say := func(format string, args ...any) { facts = append(facts, fmt.Sprintf(format, args...)) }
	if unit := cmp.Or(use.Unit, s.Unit); unit != "" {
		say("Unit: %s.", unit)
	}
	if len(s.Enum) > 0 {
		say("One of %s.", strings.Join(p.values(s), ", "))
	}
	if limits := limitsOf(s); limits != "" {
		say("%s.", limits)
	}
	if s.Pattern != "" {
		say("Matches `%s`.", s.Pattern)
	}
	if resource := cmp.Or(use.Resource, s.Resource); resource != "" {
		say("Names: %s.", resource)
	}
	if opens := cmp.Or(use.Opens, s.Opens); opens != nil {
		say("With %s, %s.", strings.Join(texts(opens.If), " or "), openings[opens.To])
		if opens.Instead != nil {
			say("In a tenant's call, replaced by %v.", opens.Instead)
		}
	}
	if a := cmp.Or(use.Allocates, s.Allocates); a != nil {
		say("SPDK allocates memory or loops in proportion to this value, and runs nothing else meanwhile.")
		if a.AtMost != "" {
			say("For tenants: at most %s.", a.AtMost)
		}
		if a.AtLeast != "" {
			say("For tenants: at least %s, or 0.", a.AtLeast)
		}
	}
	if use.Sensitive || s.Sensitive {
		say("Secret.")
	}
	if rep := use.Replaces; rep != nil {
		switch {
		case rep.Factor > 0:
			say("Replaces %s, which is this times %d.", rep.Name, rep.Factor)
		case rep.Times > 0:
			say("Replaces %s: this is that times %d.", rep.Name, rep.Times)
		case rep.Log2Of > 0:
			say("Replaces %s: this is log2 of that / %d, and 0 for 0.", rep.Name, rep.Log2Of)
		case rep.List:
			say("Replaces %s, which is the only item.", rep.Name)
		default:
			say("Replaces %s.", rep.Name)
		}
	}
	if use.Instead != "" {
		say("Gone: %s.", use.Instead)
	}
	if w := use.Window.String(); w != "" {
		say("%s.", w)
	}
	if use.RequiredUntil.Known() && !p.release.Known() {
		say("Required up to %s.", use.RequiredUntil)
	}
	return facts
}

// openings describes the kinds of x-spdk-opens.
var openings = map[string]string{
	"any-host":        "every host may connect",
	"deleted-data":    "the next owner of the space can read the deleted data",
	"device-commands": "hosts can send commands to the device underneath",
	"unauthenticated": "initiators need not authenticate",
}

func texts(values []any) (texts []string) {
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}

// values returns the enumerated values that the page's release supports. If the page is for all
// releases, it returns all values, each with its first release if it was added later.
func (p *page) values(s *rpcschema.Schema) (values []string) {
	for _, v := range s.Enum {
		text := fmt.Sprint(v)
		since := s.EnumSince[text]
		switch {
		case !rpcschema.Window{Since: since}.Has(p.release):
		case since.Known() && !p.release.Known():
			values = append(values, fmt.Sprintf("%s (since %s)", text, since))
		default:
			values = append(values, text)
		}
	}
	return values
}

// formatRanges lists the bounds that integer types imply.
var formatRanges = []string{"255", "65535", "4294967295", "18446744073709551615", "-2147483648", "2147483647", "-9223372036854775808", "9223372036854775807"}

func limitsOf(s *rpcschema.Schema) string {
	var parts []string
	if s.Minimum != "" && s.Minimum != "0" && !slices.Contains(formatRanges, s.Minimum.String()) {
		parts = append(parts, "at least "+s.Minimum.String())
	}
	if s.Maximum != "" && !slices.Contains(formatRanges, s.Maximum.String()) {
		parts = append(parts, "at most "+s.Maximum.String())
	}
	if s.MultipleOf != "" {
		parts = append(parts, "a multiple of "+s.MultipleOf.String())
	}
	parts = append(parts, span(s.MinLength, s.MaxLength, "characters")...)
	parts = append(parts, span(s.MinItems, s.MaxItems, "items")...)
	parts = append(parts, span(s.MinProperties, nil, "members")...)
	if len(parts) == 0 {
		return ""
	}
	text := strings.Join(parts, ", ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func span(low int, high *int, unit string) []string {
	switch {
	case low > 0 && high != nil:
		return []string{fmt.Sprintf("%d to %d %s", low, *high, unit)}
	case low > 0:
		return []string{fmt.Sprintf("at least %d %s", low, unit)}
	case high != nil:
		return []string{fmt.Sprintf("at most %d %s", *high, unit)}
	}
	return nil
}

// typeOf returns a value's type in one or two words.
func (p *page) typeOf(s *rpcschema.Schema) string {
	name := s.RefName()
	s = p.doc.Resolve(s)
	if forms := p.forms(s); len(forms) > 0 {
		names := make([]string, len(forms))
		for i, form := range forms {
			names[i] = p.typeOf(form)
		}
		return strings.Join(slices.Compact(names), " or ")
	}
	var names []string
	for _, t := range s.Type {
		switch {
		case t == "integer" && s.Format != "", t == "string" && s.Format == "uuid":
			t = s.Format
		case t == "array" && s.Items != nil:
			t = "array of " + p.typeOf(s.Items)
		case t == "object" && name != "":
			t = name
		case t == "object" && s.Additional.Schema != nil:
			t = "map of " + p.typeOf(s.Additional.Schema)
		}
		names = append(names, t)
	}
	if s.Const != nil {
		return fmt.Sprint(s.Const)
	}
	if len(names) == 0 {
		return "any"
	}
	return strings.Join(names, " or ")
}

// forms returns the forms of a union supported at the release.
func (p *page) forms(s *rpcschema.Schema) (forms []*rpcschema.Schema) {
	for _, v := range slices.Concat(s.OneOf, s.AnyOf) {
		if v.Has(p.release) {
			forms = append(forms, v)
		}
	}
	return forms
}

// inside writes the members of a value at any depth. within lists the enclosing schemas, so that
// inside does not recurse forever.
func (p *page) inside(at string, s *rpcschema.Schema, say words, within []string) {
	if name := s.RefName(); name != "" {
		if slices.Contains(within, name) {
			return
		}
		within = append(slices.Clone(within), name)
	}
	s = p.doc.Resolve(s)
	for _, form := range p.forms(s) {
		p.inside(at, form, say, within)
	}
	if s.Items != nil {
		p.inside(at+"[]", s.Items, say, within)
	}
	if s.Additional.Schema != nil {
		p.inside(dot(at, "NAME"), s.Additional.Schema, say, within)
	}
	for _, member := range s.Properties {
		if !member.Schema.Has(p.release) {
			continue
		}
		required := slices.Contains(s.Required, member.Name)
		p.entry(dot(at, member.Name), need(required, member.Schema, say.required, say.optional), member.Schema, "")
		p.inside(dot(at, member.Name), member.Schema, say, within)
	}
}

func dot(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
