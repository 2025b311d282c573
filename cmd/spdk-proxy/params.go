package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// parseParams builds parameters from name=value and name:=JSON arguments. The schema determines the
// type of each value. a.b=value sets member b of object a; repeating name=value builds a list.
// Without arguments, the result is nil.
func parseParams(m *rpcschema.Method, schema *rpcschema.Document, args []string) (map[string]any, error) {
	top := rpcschema.Schema{Type: rpcschema.TypeSet{"object"}}
	for _, p := range m.Params {
		top.Properties = append(top.Properties, rpcschema.Property{Name: p.Name, Schema: p.Schema})
	}
	p := paramParser{schema: schema, method: m.Name}
	var params map[string]any
	for _, arg := range args {
		if params == nil {
			params = map[string]any{}
		}
		if err := p.argument(params, &top, arg); err != nil {
			return nil, usage("%w", err)
		}
	}
	return params, nil
}

type paramParser struct {
	schema *rpcschema.Document
	method string
}

func (p *paramParser) argument(params map[string]any, top *rpcschema.Schema, arg string) error {
	name, text, ok := strings.Cut(arg, "=")
	if !ok || name == "" || name == ":" {
		return fmt.Errorf("%q: write parameters as name=value or name:=JSON", arg)
	}
	name, isJSON := strings.CutSuffix(name, ":")
	object, s := params, top
	path := strings.Split(name, ".")
	for i, member := range path {
		next, err := p.member(s, member, strings.Join(path[:i], "."))
		if err != nil {
			return err
		}
		s = next
		if i == len(path)-1 {
			value, err := p.value(s, name, text, isJSON)
			if err != nil {
				return err
			}
			return set(object, member, name, value, s)
		}
		inner, ok := object[member].(map[string]any)
		if !ok {
			if _, taken := object[member]; taken {
				return fmt.Errorf("%s is specified both as a whole and by members", strings.Join(path[:i+1], "."))
			}
			inner = map[string]any{}
			object[member] = inner
		}
		object = inner
	}
	return nil
}

// member returns the schema of the named member.
func (p *paramParser) member(s *rpcschema.Schema, name, within string) (*rpcschema.Schema, error) {
	if next := s.Properties.Get(name); next != nil {
		return p.schema.Resolve(next), nil
	}
	if s.Additional.Allowed {
		if s.Additional.Schema == nil {
			return &rpcschema.Schema{}, nil
		}
		return p.schema.Resolve(s.Additional.Schema), nil
	}
	owner := p.method
	if within != "" {
		owner = within + " of " + p.method
	}
	var names []string
	for _, property := range s.Properties {
		names = append(names, property.Name)
	}
	if near := rpcschema.Nearest(name, names); near != "" {
		return nil, fmt.Errorf("%s has no %s: did you mean %s?", owner, name, near)
	}
	if len(names) == 0 {
		if within == "" {
			return nil, fmt.Errorf("%s takes no parameters: remove %s", owner, name)
		}
		return nil, fmt.Errorf("%s has no members: remove .%s", owner, name)
	}
	return nil, fmt.Errorf("%s has no %s; it has %s", owner, name, strings.Join(names, ", "))
}

// value converts text to a value of the schema's type.
func (p *paramParser) value(s *rpcschema.Schema, name, text string, isJSON bool) (any, error) {
	if isJSON {
		return p.jsonValue(s, name, text)
	}
	if s.Sensitive {
		return secretIn(name, text)
	}
	switch main := s.Type.Main(); main {
	case "string":
		return text, nil
	case "array":
		item, err := p.value(p.schema.Resolve(s.Items), name, text, false)
		if err != nil {
			return nil, err
		}
		return []any{item}, nil
	case "object":
		return nil, fmt.Errorf("%s is an object: specify its members (%s.member=value), or the whole object (%s:='{…}')", name, name, name)
	default:
		v, err := jsonrpc.DecodeValue([]byte(text), jsonrpc.Limits{})
		if main == "" { // the schema allows several types, so text that is not JSON is a string
			if err != nil {
				v = text
			}
			return v, nil
		}
		if err != nil || !slices.Contains(typesOf(v), main) {
			return nil, fmt.Errorf("%s must be %s, not %q", name, withArticle(main), text)
		}
		return v, nil
	}
}

// jsonValue decodes a value, or reads it from a file if it is @FILE, which is never valid JSON. It
// refuses values on the command line that may contain secrets.
func (p *paramParser) jsonValue(s *rpcschema.Schema, name, text string) (any, error) {
	path, inFile := strings.CutPrefix(text, "@")
	if !inFile && p.schema.MayHaveSecrets(s) {
		return nil, secretOnCommandLine(name, ":=@FILE")
	}
	source := []byte(text)
	if inFile {
		open := os.Open
		if p.schema.MayHaveSecrets(s) {
			open = openSecret
		}
		f, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer func() { _ = f.Close() }()
		if source, err = io.ReadAll(f); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	v, err := jsonrpc.DecodeValue(source, jsonrpc.Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// secretIn reads a secret from @FILE. It refuses secrets on the command line, and files that other
// users of this host can access.
func secretIn(name, text string) (any, error) {
	path, ok := strings.CutPrefix(text, "@")
	if !ok || path == "" {
		return nil, secretOnCommandLine(name, "=@FILE")
	}
	f, err := openSecret(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	line, err := firstLine(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return line, nil
}

func secretOnCommandLine(name, fromFile string) error {
	return fmt.Errorf("%[1]s may contain a secret, and every user of this host can read a command line: put it into a file, and write %[1]s%[2]s (@/dev/stdin for standard input)", name, fromFile)
}

func typesOf(v any) []string {
	switch v := v.(type) {
	case bool:
		return []string{"boolean"}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return []string{"number"}
		}
		return []string{"number", "integer"}
	case nil:
		return []string{"null"}
	}
	return nil
}

func withArticle(kind string) string {
	if kind == "integer" {
		return "a whole number"
	}
	if kind == "boolean" {
		return "true or false"
	}
	return "a " + kind
}

// set sets a member of object or, if the member is a list, appends a value to it.
func set(object map[string]any, member, name string, value any, s *rpcschema.Schema) error {
	old, given := object[member]
	if !given {
		object[member] = value
		return nil
	}
	list, isList := old.([]any)
	more, isMore := value.([]any)
	if !isList || !isMore || s.Type.Main() != "array" {
		return fmt.Errorf("%s is specified twice", name)
	}
	object[member] = append(list, more...)
	return nil
}
