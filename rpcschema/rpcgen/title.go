package main

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Client generators use titles as the names of their types. A component's title is its name. The
// title of a schema inside a component or a method is the path to it, as in the names of the typed
// Go client.

// titleMethod sets the titles of the schemas in a method.
func titleMethod(m *yaml.Node, name string) {
	if params := member(m, "params"); params != nil {
		for _, p := range params.Content {
			if schema, key := member(p, "schema"), member(p, "name"); schema != nil && key != nil {
				titleValue(schema, name+goName(key.Value))
			}
		}
	}
	if result := member(m, "result"); result != nil {
		if schema := member(result, "schema"); schema != nil {
			titleValue(schema, name+"Result")
		}
	}
}

// titleValue sets the titles of a schema that has no name yet, and of the schemas in it.
func titleValue(s *yaml.Node, title string) {
	if s.Kind != yaml.MappingNode || member(s, "$ref") != nil {
		return
	}
	titleParts(s, title)
	setTitle(s, title)
}

// titleParts sets the titles of the schemas inside a schema.
func titleParts(s *yaml.Node, owner string) {
	if properties := member(s, "properties"); properties != nil {
		for i := 0; i+1 < len(properties.Content); i += 2 {
			titleValue(properties.Content[i+1], owner+goName(properties.Content[i].Value))
		}
	}
	if items := member(s, "items"); items != nil {
		titleValue(items, singular(owner))
	}
	if others := member(s, "additionalProperties"); others != nil {
		titleValue(others, owner+"Value")
	}
	for _, keyword := range []string{"oneOf", "anyOf"} {
		if forms := member(s, keyword); forms != nil {
			for _, form := range forms.Content {
				titleValue(form, owner+formName(form))
			}
		}
	}
}

// singular returns the name of an item of the named list.
func singular(name string) string {
	if one, plural := strings.CutSuffix(name, "s"); plural {
		return one
	}
	return name + "Item"
}

// formName names a union's form by its type.
func formName(form *yaml.Node) string {
	typ := member(form, "type")
	if typ == nil || typ.Kind != yaml.ScalarNode {
		return "Form"
	}
	return goName(typ.Value)
}

// setTitle sets the title of a schema that has none.
func setTitle(s *yaml.Node, title string) {
	if member(s, "title") == nil {
		prepend(s, "title", scalar(title))
	}
}
