package policy

import (
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// match lists the methods that a glob matches. It returns an error if the glob matches no method.
func match(glob string, schema *rpcschema.Document) ([]*rpcschema.Method, error) {
	methods, err := schema.Match(glob)
	if err != nil {
		return nil, fmt.Errorf("%w: globs support * ? [a-z], and \\ before a literal character", err)
	}
	if len(methods) > 0 {
		return methods, nil
	}
	if !strings.ContainsAny(glob, `*?[\`) {
		m, err := schema.Find(glob, rpcschema.Release{})
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s is a deprecated name: write %s", glob, m.Name)
	}
	if near := nearGlob(glob, schema); near != "" {
		return nil, fmt.Errorf("no method matches: did you mean %s?", near)
	}
	return nil, fmt.Errorf("no method matches: `spdk-proxy call rpc_get_methods` lists the names")
}

// nearGlob returns a glob for the methods that share the longest prefix with glob.
func nearGlob(glob string, schema *rpcschema.Document) string {
	literal, _, _ := strings.Cut(glob, "*")
	literal = literal[:min(len(literal), strings.IndexAny(literal+`?`, `?[\`))]
	for n := len(literal); n > 2; n-- {
		var names []string
		for _, m := range schema.Methods() {
			if strings.HasPrefix(m.Name, literal[:n]) {
				names = append(names, m.Name)
			}
		}
		if len(names) == 1 {
			return names[0]
		}
		if len(names) > 1 {
			prefix := commonPrefix(names)
			return prefix[:strings.LastIndexByte(prefix, '_')+1] + "*"
		}
	}
	return ""
}

// commonPrefix returns the common prefix of sorted names, which is that of the first and the last
// name.
func commonPrefix(sorted []string) string {
	first, last := sorted[0], sorted[len(sorted)-1]
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return first[:n]
}
