// Package policy answers one question of the proxy: may this user call this
// method? Users have roles, roles allow and deny methods by glob; what no role
// allows is denied, and a deny of any role wins over every allow.
//
// It may not know how a user was recognised, what a call's reply holds, or how
// an answer looks on the wire; no other stage of the proxy is imported here.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Role lists globs (* ? [a-z]) over the names of SPDK's methods.
type Role struct {
	Allow []string
	Deny  []string
}

// A Decision says whether a call is allowed, and which rule says so.
type Decision struct {
	Allowed bool
	Rule    string // such as "role ops: deny bdev_lvol_delete"; for the log
}

// NoRule is the rule that decides where no other does.
const NoRule = "no rule allows it"

// A Policy decides. It does not change and may be used concurrently.
type Policy struct {
	users map[string]map[string]Decision // user → method → what a rule decides
}

// New makes a Policy of roles and of users' roles. Rules must match methods of
// the schema: a rule that matches none is a mistake, and a mistake in a deny
// would let calls pass. All that is wrong is reported, joined.
func New(roles map[string]Role, users map[string][]string, schema *rpcschema.Document) (*Policy, error) {
	var wrong []error
	compiled := map[string][]rule{}
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		rules, err := compile(name, roles[name], schema)
		compiled[name] = rules
		wrong = append(wrong, err)
	}
	p := &Policy{users: make(map[string]map[string]Decision, len(users))}
	sameRoles := map[string]map[string]Decision{} // so that a thousand alike users take no room
	for _, user := range slices.Sorted(maps.Keys(users)) {
		var rules []rule
		for _, role := range users[user] {
			if _, ok := compiled[role]; !ok {
				wrong = append(wrong, unknownRole(user, role, roles))
			}
			rules = append(rules, compiled[role]...)
		}
		if len(users[user]) == 0 {
			wrong = append(wrong, fmt.Errorf("user %s has no roles, and so may do nothing: give one of roles, or leave the user out", user))
		}
		key := strings.Join(users[user], "\x00")
		if sameRoles[key] == nil {
			sameRoles[key] = decide(rules)
		}
		p.users[user] = sameRoles[key]
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return p, nil
}

// Decide tells whether user may call method. Whoever is not known may nothing.
func (p *Policy) Decide(user, method string) Decision {
	if d, ok := p.users[user][method]; ok {
		return d
	}
	return Decision{Rule: NoRule}
}

// A rule is one glob of a role with the methods that it matches.
type rule struct {
	allow   bool
	name    string
	methods []*rpcschema.Method
}

// decide works out what the rules say on each method that they match: denies
// before allows, and of each the first.
func decide(rules []rule) map[string]Decision {
	decisions := map[string]Decision{}
	for _, allow := range []bool{false, true} {
		for _, r := range rules {
			if r.allow != allow {
				continue
			}
			for _, m := range r.methods {
				if _, decided := decisions[m.Name]; !decided {
					decisions[m.Name] = Decision{Allowed: allow, Rule: r.name}
				}
			}
		}
	}
	return decisions
}

func compile(name string, role Role, schema *rpcschema.Document) ([]rule, error) {
	var rules []rule
	var wrong []error
	for _, list := range []struct {
		verb  string
		globs []string
	}{{"allow", role.Allow}, {"deny", role.Deny}} {
		for _, glob := range list.globs {
			label := fmt.Sprintf("role %s: %s %s", name, list.verb, glob)
			methods, err := match(glob, schema)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", label, err))
			}
			rules = append(rules, rule{allow: list.verb == "allow", name: label, methods: methods})
		}
	}
	if len(rules) == 0 {
		wrong = append(wrong, fmt.Errorf("role %s allows nothing: list methods under allow, such as [spdk_get_version, \"bdev_get_*\"]", name))
	}
	return rules, errors.Join(wrong...)
}
