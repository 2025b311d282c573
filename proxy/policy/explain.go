package policy

// A Finding is a rule that matches a method, and what it came to.
type Finding struct {
	Role    string // where the rule stands
	Rule    string
	Allow   bool
	Decides bool
	Why     string
}

// Explain lists the rules of a user's roles that match a method, in their order,
// with what each comes to. Parameters are those that decision was given; nil with
// known false where there are none yet.
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
	judged, certain := asJudged(m, params)
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
			f.Why = "cannot be held against parameters that mean the same twice"
		case b.conditions != nil && !b.holds(judged):
			f.Why = "does not hold: not so that " + b.failing(judged).text
		default:
			f.Why = b.idle(decision)
		}
		findings = append(findings, f)
	}
	return findings
}

// idle says why a rule that holds does not decide.
func (b *bound) idle(d Decision) string {
	switch {
	case !b.allow:
		return "would deny it, too"
	case !d.Allowed || d.Learned:
		return "allows it, but a deny wins"
	case b.redact:
		return "would allow it without secrets, but the other shows them"
	default:
		return "would allow it, too"
	}
}

// Methods lists what a user may call, with the decisions, in alphabetical order.
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
	Depends  []string // names of the rules that the parameters decide on
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

// Knows tells whether there is a user of that name.
func (p *Policy) Knows(user string) bool { return p.users[user] != nil }
