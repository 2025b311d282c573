package policy

import "github.com/spdkgate/spdkgate/rpcschema"

// A Decision states whether a call is allowed, and which rule determines this.
type Decision struct {
	Allowed bool
	Rule    string // name of the rule for the log, such as "role ops: deny bdev_lvol_delete"
	// Learned means that the call is allowed only because of learning mode: Rule would have refused
	// it.
	Learned bool
	// Redact means that the user must not see secrets in the result.
	Redact bool

	open     *open // rules that depend on the parameters; nil if there are none
	learning bool
}

// If no rule decides, Decision.Rule has one of these values.
const (
	NoRule      = "no rule allows it"
	NoRuleThere = "no rule allows it with these parameters"
	Open        = "it depends on the parameters"
)

// Refused reports whether the call is refused whatever its parameters are. A decision that neither
// refuses nor allows a call depends on the parameters; see WithParams.
func (d Decision) Refused() bool { return !d.Allowed && d.open == nil }

// WithParams completes a decision with the call's parameters, which must be valid, and must be
// exactly those that are sent to SPDK, translated for its release.
func (d Decision) WithParams(params map[string]any) Decision {
	if d.open == nil {
		return d
	}
	return d.open.decide(params).learn(d.learning)
}

// learn returns d. If learning is set and d refuses the call, it returns a decision that allows the
// call instead.
func (d Decision) learn(learning bool) Decision {
	d.learning = learning
	if learning && d.Refused() {
		d.Allowed, d.Learned = true, true
	}
	return d
}

// open contains the rules for a method that depend on the parameters: denies with conditions, and
// allows up to the first unconditional allow.
type open struct {
	method         *rpcschema.Method
	denies, allows []*bound
}

func (o *open) decide(given map[string]any) Decision {
	params, certain := normalize(o.method, given)
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

// A bound rule is a rule compiled for one method.
type bound struct {
	allow      bool
	name       string // name of the rule
	conditions []condition
	redact     bool
}

// holds reports whether all conditions hold.
func (b *bound) holds(params map[string]any) bool { return b.failing(params) == nil }

// failing returns the first condition that does not hold, or nil if all of them hold.
func (b *bound) failing(params map[string]any) *condition {
	for i := range b.conditions {
		if !b.conditions[i].holds(params) {
			return &b.conditions[i]
		}
	}
	return nil
}

// decide combines the rules for a method. A deny takes precedence over every allow, and an allow
// without redaction over an allow that redacts secrets. Otherwise, the first rule counts.
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
	if o.allows = withoutRedundant(o.allows); len(o.allows) == 0 || o.allows[0].conditions != nil {
		o.allows = append(o.allows, withoutRedundant(redacting)...)
	}
	switch {
	case len(o.allows) == 0:
		return Decision{Rule: NoRule}
	case len(o.denies) == 0 && o.allows[0].conditions == nil:
		return o.decide(nil)
	}
	return Decision{Rule: Open, open: &o}
}

// withoutRedundant removes allows that cannot affect decisions. If an allow is unconditional, all
// others are redundant.
func withoutRedundant(allows []*bound) []*bound {
	for _, r := range allows {
		if r.conditions == nil {
			return []*bound{r}
		}
	}
	return allows
}
