package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// DecodeStrict decodes a single YAML document. A key that is misspelled, occurs twice or has the
// wrong type causes an error with its line, because an ignored key could be one that denies access.
// The returned error joins all errors found.
func DecodeStrict(text []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := dec.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the file is empty")
		}
		return fmt.Errorf("not YAML: %w", err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("the file contains a second document (---): keep one")
	}
	var s strictness
	s.check(document.Content[0], reflect.TypeOf(into).Elem(), "")
	if len(s.wrong) > 0 {
		return errors.Join(s.wrong...)
	}
	return document.Decode(into)
}

type strictness struct{ wrong []error }

func (s *strictness) complain(n *yaml.Node, format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Errorf("line %d: %w", n.Line, fmt.Errorf(format, args...)))
}

// check compares a node with the type into which it will be decoded.
func (s *strictness) check(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" || t == reflect.TypeFor[yaml.Node]() {
		return // null counts as absent, or t accepts any value
	}
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		t = t.Elem()
	}
	if short := shorthand(t); short != nil && n.Kind == yaml.ScalarNode {
		s.scalar(n, short, path)
		return
	} else if _, ok := reflect.New(t).Interface().(yaml.Unmarshaler); ok && short == nil {
		s.scalar(n, t, path)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		fields, filled := map[string]reflect.Type{}, map[string]bool{}
		var names []string
		for f := range t.Fields() {
			if name := f.Tag.Get("yaml"); name != "" {
				fields[name], filled[name] = f.Type, f.Tag.Get("empty") == "no"
				names = append(names, name)
			}
		}
		s.mapping(n, path, func(key *yaml.Node, value *yaml.Node) {
			field, ok := fields[key.Value]
			if !ok {
				s.complain(key, "%s is not a key%s: %s", join(path, key.Value), where(path), Suggest(key.Value, names))
				return
			}
			if filled[key.Value] && (value.Value == "" || value.Tag == "!!null") && value.Kind == yaml.ScalarNode {
				s.complain(key, "%s is empty: set it, or remove the key", join(path, key.Value))
			}
			s.check(value, field, join(path, key.Value))
		})
	case reflect.Map:
		s.mapping(n, path, func(key, value *yaml.Node) { s.check(value, t.Elem(), join(path, key.Value)) })
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			s.complain(n, "%s must be a list: [a, b]", path)
			return
		}
		for i, item := range n.Content {
			s.check(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		s.scalar(n, t, path)
	}
}

// shorthand returns the type of the field that a scalar sets if it replaces the whole struct. For
// types without such a field, it returns nil.
func shorthand(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			if f.Tag.Get("short") == "yes" {
				return f.Type
			}
		}
	}
	return nil
}

func (s *strictness) mapping(n *yaml.Node, path string, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		if path == "" {
			path = "the configuration"
		}
		s.complain(n, "%s must be a mapping (key: value)", path)
		return
	}
	lines := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, twice := lines[key.Value]; twice {
			s.complain(key, "%s already occurs in line %d: keep one", join(path, key.Value), line)
			continue
		}
		lines[key.Value] = key.Line
		each(key, n.Content[i+1])
	}
}

// scalar checks that a single value can be decoded. Its errors replace the library's, which quote
// the value, because the value may be secret.
func (s *strictness) scalar(n *yaml.Node, t reflect.Type, path string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := reflect.New(t)
	if n.Kind == yaml.ScalarNode && n.Decode(v.Interface()) == nil {
		return
	}
	want := "text"
	if u, ok := v.Interface().(yaml.Unmarshaler); ok {
		want = u.UnmarshalYAML(n).Error()
	} else if t.Kind() == reflect.Bool {
		want = "true or false"
	} else if _, ok := v.Interface().(interface{ UnmarshalText([]byte) error }); ok {
		want = "debug, info, warn or error"
	} else if t.Kind() == reflect.Int {
		want = "a whole number"
	}
	s.complain(n, "%s must be %s", path, want)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func where(path string) string {
	if path == "" {
		return ""
	}
	return " of " + path
}

// Suggest returns text for an error about a misspelled key: it suggests one of names, or lists them
// all.
func Suggest(key string, names []string) string {
	near := rpcschema.Nearest(key, names)
	for _, name := range names {
		if near == "" && strings.HasPrefix(name, key) {
			near = name
		}
	}
	if near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return "use one of " + strings.Join(names, ", ")
}
