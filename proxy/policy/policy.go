// Package policy is the proxy's authorization stage: it decides whether a user may call a method
// with given parameters. Users have roles, and roles allow and deny methods by glob, optionally
// with conditions on parameters. A call that no role allows is denied, and a deny in any role takes
// precedence over all allows.
//
// The package must not depend on how a user was authenticated, who owns the objects named in a
// call, what a result contains, or how a response is encoded. It imports no other stage of the
// proxy.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A User contains a user's roles.
type User struct {
	Roles []string
	// Learning allows calls that the roles would refuse.
	Learning bool
}

// A Policy decides which calls are allowed. It is immutable and safe for concurrent use.
type Policy struct {
	users  map[string]*user
	schema *rpcschema.Document
}

// A user contains the compiled rules of a User. Users with the same roles share a user value.
type user struct {
	decisions map[string]Decision // by method
	rules     []*rule             // all rules, for Explain
	roles     []string            // as in the configuration
	learning  bool
}

// New returns a Policy for users with these roles or built-in roles. Each rule must match a method
// in the schema, and each pointer must refer to a parameter, because a mistake in a deny would
// allow calls. The error joins all mistakes.
func New(roles map[string]Role, users map[string]User, schema *rpcschema.Document) (*Policy, error) {
	var wrong []error
	all := BuiltIn(schema)
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		if _, taken := all[name]; taken {
			wrong = append(wrong, fmt.Errorf("role %s is built in and cannot be redefined: choose another name, with extends: [%s]", name, name))
			continue
		}
		all[name] = roles[name]
	}
	compiled := map[string][]*rule{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rules, err := compile(name, all[name], schema)
		compiled[name] = rules
		wrong = append(wrong, err)
	}
	// for each role, its own rules and those of the roles that it extends
	rulesOf := map[string][]*rule{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names, err := extended(name, all)
		wrong = append(wrong, err)
		for _, other := range names {
			rulesOf[name] = append(rulesOf[name], compiled[other]...)
		}
	}
	p := &Policy{users: make(map[string]*user, len(users)), schema: schema}
	// shared, so that many users with the same roles need little memory
	sameRoles := map[string]*user{}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		u := users[name]
		for _, role := range u.Roles {
			if _, ok := all[role]; !ok {
				wrong = append(wrong, fmt.Errorf("user %s has role %q, %s", name, role, missing(role, all)))
			}
		}
		if len(u.Roles) == 0 && !u.Learning {
			wrong = append(wrong, fmt.Errorf("user %s has no roles and may do nothing: add a role, or remove the user", name))
		}
		key := fmt.Sprint(u.Learning, "\x00", strings.Join(u.Roles, "\x00"))
		if sameRoles[key] == nil {
			sameRoles[key] = newUser(u, rulesOf, schema)
		}
		p.users[name] = sameRoles[key]
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return p, nil
}

// newUser precomputes the decision about each method from the rules in the user's roles.
func newUser(u User, rulesOf map[string][]*rule, schema *rpcschema.Document) *user {
	made := &user{decisions: map[string]Decision{}, roles: u.Roles, learning: u.Learning}
	for _, role := range u.Roles {
		for _, r := range rulesOf[role] {
			if !slices.Contains(made.rules, r) {
				made.rules = append(made.rules, r)
			}
		}
	}
	on := map[string][]*bound{}
	for _, r := range made.rules {
		for method, b := range r.methods {
			on[method] = append(on[method], b)
		}
	}
	for _, m := range schema.Methods() {
		made.decisions[m.Name] = decide(m, on[m.Name]).learn(u.Learning)
	}
	return made
}

// Decide decides whether user may call method. Unknown users and methods are refused.
func (p *Policy) Decide(user, method string) Decision {
	if u := p.users[user]; u != nil {
		if d, ok := u.decisions[method]; ok {
			return d
		}
	}
	return Decision{Rule: NoRule}
}

// Roles returns a user's roles in the configuration.
func (p *Policy) Roles(user string) []string {
	roles := []string{}
	if u := p.users[user]; u != nil {
		roles = append(roles, u.roles...)
	}
	return roles
}

// HasRole reports whether a user has a role, directly or through a role that extends it.
func (p *Policy) HasRole(user, role string) bool {
	u := p.users[user]
	return u != nil && slices.ContainsFunc(u.rules, func(r *rule) bool { return r.role == role })
}

// A rule is a compiled Rule of a role.
type rule struct {
	role    string
	name    string
	methods map[string]*bound
}

func compile(name string, role Role, schema *rpcschema.Document) ([]*rule, error) {
	var rules []*rule
	var wrong []error
	for _, list := range []struct {
		verb  string
		rules []Rule
	}{{"allow", role.Allow}, {"deny", role.Deny}} {
		for _, r := range list.rules {
			label := fmt.Sprintf("role %s: %s %s", name, list.verb, r)
			compiled, err := compileRule(r, list.verb == "allow", role.redact || r.redact, schema)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", label, err))
				continue
			}
			compiled.role, compiled.name = name, label
			for _, b := range compiled.methods {
				b.name = label
			}
			rules = append(rules, compiled)
		}
	}
	if len(role.Allow)+len(role.Deny)+len(role.Extends) == 0 {
		wrong = append(wrong, fmt.Errorf("role %s allows nothing: list methods under allow, such as [spdk_get_version, \"bdev_get_*\"]", name))
	}
	return rules, errors.Join(wrong...)
}

func compileRule(r Rule, allow, redact bool, schema *rpcschema.Document) (*rule, error) {
	methods, err := match(r.Method, schema)
	if err != nil {
		return nil, err
	}
	if r.Where != nil && len(r.Where) == 0 {
		return nil, errors.New("where is empty: add a parameter, such as /lvs_name: {glob: \"lvs-a*\"}, or remove the key")
	}
	compiled := &rule{methods: map[string]*bound{}}
	var wrong []error
	for _, m := range methods {
		conditions, err := newConditions(r.Where, m, schema, !allow)
		wrong = append(wrong, err)
		compiled.methods[m.Name] = &bound{allow: allow, conditions: conditions, redact: redact && schema.Discloses(m)}
	}
	return compiled, errors.Join(wrong...)
}
