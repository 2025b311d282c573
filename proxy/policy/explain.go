package policy

// A Finding describes a rule that matches a method, and the rule's effect on a decision.
type Finding struct {
	Role    string // role that contains the rule
	Rule    string
	Allow   bool
	Decides bool
	Why     string // why the rule does or does not decide
}

// Explain lists the rules in a user's roles that match a method, in order, with their effects. If
// known is true, params contains the call's parameters. Otherwise, Explain considers only the
// method.
func (p *Policy) Explain(user, method string, params map[string]any, known bool) (findings []Finding) {
	u := p.users[user]
	if u == nil {
		return nil
	}
	decision := u.decisions[method]
	if known {
		decision = decision.WithParams(params)
	}
	m, ok := p.schema.Method(method)
	if !ok {
		return nil
	}
	normal, certain := normalize(m, params)
	decided := false
	for _, r := range u.rules {
		b := r.methods[method]
		if b == nil {
			continue
		}
		f := Finding{Role: r.role, Rule: r.name, Allow: b.allow}
		switch {
		case !decided && decision.Rule == r.name:
			f.Decides, decided = true, true
			f.Why = "decides"
		case b.conditions != nil && !known:
			f.Why = "depends on the parameters"
		case b.conditions != nil && !certain:
			f.Why = "has conditions that cannot be tested, because two parameters of the call mean the same"
		case b.conditions != nil && !b.holds(normal):
			f.Why = "does not apply: the call does not meet the condition " + b.failing(normal).text
		default:
			f.Why = b.whyNotDeciding(decision)
		}
		findings = append(findings, f)
	}
	return findings
}

// whyNotDeciding returns the reason why an applicable rule does not decide.
func (b *bound) whyNotDeciding(d Decision) string {
	switch {
	case !b.allow:
		return "also denies it"
	case !d.Allowed || d.Learned:
		return "allows it, but a deny takes precedence"
	case b.redact:
		return "allows it without secrets, but the other rule shows them"
	default:
		return "also allows it"
	}
}

// Methods lists the methods that a user may call, with the decisions about them, in alphabetical
// order.
func (p *Policy) Methods(user string) (list []Permission) {
	for _, m := range p.schema.Methods() {
		if d := p.Decide(user, m.Name); !d.Refused() {
			list = append(list, Permission{m.Name, d, d.conditions()})
		}
	}
	return list
}

// A Permission is a method that a user may call.
type Permission struct {
	Method   string
	Decision Decision
	Depends  []string // names of rules that depend on the parameters
}

func (d Decision) conditions() (names []string) {
	if d.open == nil {
		return nil
	}
	for _, list := range [][]*bound{d.open.denies, d.open.allows} {
		for _, b := range list {
			names = append(names, b.name)
		}
	}
	return names
}
