package policy

import "github.com/spdkgate/spdkgate/rpcschema"

// A Decision says whether a call is allowed, and which rule says so.
type Decision struct {
	Allowed bool
	Rule    string // such as "role ops: deny bdev_lvol_delete"; for the log
	// Learned calls are allowed only because the user is being learned of: Rule
	// would have refused them.
	Learned bool
	// Redact asks for the result without its secrets.
	Redact bool

	open     *open // rules that the parameters decide on
	learning bool
}

// What decides where no rule does.
const (
	NoRule      = "no rule allows it"
	NoRuleThere = "no rule allows it with these parameters"
	Open        = "it depends on the parameters"
)

// Refused tells whether the call is refused whatever its parameters are. A
// decision that is neither refused nor allowed depends on them: see WithParams.
func (d Decision) Refused() bool { return !d.Allowed && d.open == nil }

// WithParams completes a decision with the parameters of the call, exactly as they go
// to SPDK: translated for its release, and valid.
func (d Decision) WithParams(params map[string]any) Decision {
	if d.open == nil {
		return d
	}
	return d.open.decide(params).learn(d.learning)
}

// learn lets pass what is refused, where that is asked for.
func (d Decision) learn(learning bool) Decision {
	d.learning = learning
	if learning && d.Refused() {
		d.Allowed, d.Learned = true, true
	}
	return d
}

// open are the rules on a method where the parameters decide: denies with
// conditions, and allows as far as the first without.
type open struct {
	method         *rpcschema.Method
	denies, allows []*bound
}

func (o *open) decide(given map[string]any) Decision {
	params, certain := asJudged(o.method, given)
	for _, r := range o.denies {
		if !certain || r.holds(params) {
			return Decision{Rule: r.name}
		}
	}
	for _, r := range o.allows {
		if r.conditions == nil || certain && r.holds(params) {
			return Decision{Allowed: true, Rule: r.name, Redact: r.redact}
		}
	}
	return Decision{Rule: NoRuleThere}
}

// A bound rule is one that is about a certain method.
type bound struct {
	allow      bool
	name       string // of the rule
	conditions []condition
	redact     bool
}

// holds tells whether all conditions do.
func (b *bound) holds(params map[string]any) bool { return b.failing(params) == nil }

// failing is the first condition that does not hold.
func (b *bound) failing(params map[string]any) *condition {
	for i := range b.conditions {
		if !b.conditions[i].holds(params) {
			return &b.conditions[i]
		}
	}
	return nil
}

// decide works out what the rules on one method say: a deny wins over every
// allow, and of each the first. An allow that shows all wins over one that takes
// secrets out.
func decide(m *rpcschema.Method, rules []*bound) Decision {
	o := open{method: m}
	var redacting []*bound
	for _, r := range rules {
		switch {
		case !r.allow && r.conditions == nil:
			return Decision{Rule: r.name}
		case !r.allow:
			o.denies = append(o.denies, r)
		case r.redact:
			redacting = append(redacting, r)
		default:
			o.allows = append(o.allows, r)
		}
	}
	if o.allows = withoutIdle(o.allows); len(o.allows) == 0 || o.allows[0].conditions != nil {
		o.allows = append(o.allows, withoutIdle(redacting)...)
	}
	switch {
	case len(o.allows) == 0:
		return Decision{Rule: NoRule}
	case len(o.denies) == 0 && o.allows[0].conditions == nil:
		return o.decide(nil)
	}
	return Decision{Rule: Open, open: &o}
}

// withoutIdle leaves out what cannot decide: beside an allow without conditions
// all others are idle.
func withoutIdle(allows []*bound) []*bound {
	for _, r := range allows {
		if r.conditions == nil {
			return []*bound{r}
		}
	}
	return allows
}
