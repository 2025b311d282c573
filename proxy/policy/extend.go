package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// extended returns the names of a role and of all roles that it extends, directly or indirectly. It
// lists each name once, beginning with the role itself. If a role extends itself or does not exist,
// the error names the chain.
func extended(name string, roles map[string]Role) ([]string, error) {
	var found []string
	var visit func(chain []string) error
	visit = func(chain []string) error {
		name := chain[len(chain)-1]
		if slices.Contains(chain[:len(chain)-1], name) {
			return fmt.Errorf("role %s: a role cannot extend itself", strings.Join(chain, " extends "))
		}
		role, ok := roles[name]
		if !ok {
			return fmt.Errorf("role %s, %s", strings.Join(chain, " extends "), missing(name, roles))
		}
		if slices.Contains(found, name) {
			return nil
		}
		found = append(found, name)
		for _, parent := range role.Extends {
			if err := visit(append(slices.Clone(chain), parent)); err != nil {
				return err
			}
		}
		return nil
	}
	err := visit([]string{name})
	return found, err
}

// missing returns the part of an error about an unknown role that suggests a similar name.
func missing(name string, roles map[string]Role) string {
	names := slices.Sorted(maps.Keys(roles))
	if near := rpcschema.Nearest(name, names); near != "" {
		return fmt.Sprintf("which does not exist: did you mean %s?", near)
	}
	return "which is neither built in nor under roles: the roles are " + strings.Join(names, ", ")
}
