package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// lineage is a role with all that it extends, each once, itself first. A role
// that extends itself by whatever way, or one that there is not, is an error
// that names the chain.
func lineage(name string, roles map[string]Role) ([]string, error) {
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

// missing says of a role that is not there what there is.
func missing(name string, roles map[string]Role) string {
	names := slices.Sorted(maps.Keys(roles))
	if near := rpcschema.Nearest(name, names); near != "" {
		return fmt.Sprintf("which is not there: did you mean %s?", near)
	}
	return "which is neither built in nor under roles: there are " + strings.Join(names, ", ")
}
