package dryrun

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Row contains one expected decision.
type Row struct {
	Who    string    `yaml:"who" empty:"no"`
	Call   string    `yaml:"call" empty:"no"`
	Params yaml.Node `yaml:"params"`
	Expect string    `yaml:"expect" empty:"no"`
	Rule   string    `yaml:"rule"`

	line int
}

// A Failure is a row whose expected decision differs from the actual decision.
type Failure struct {
	Line             int
	Who, Call        string
	Expected, Became string
}

const (
	expectAllow = "allow"
	expectDeny  = "deny"
)

// ReadTable reads a table from a YAML list. As in a configuration, unknown keys are errors.
func ReadTable(text []byte) ([]Row, error) {
	var rows []Row
	if err := config.DecodeStrict(text, &rows); err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	for i := range rows {
		r := &rows[i]
		r.line = document.Content[0].Content[i].Line
		switch {
		case r.Who == "", r.Call == "":
			return nil, fmt.Errorf("line %d: who and call must be set", r.line)
		case r.Expect != expectAllow && r.Expect != expectDeny:
			return nil, fmt.Errorf("line %d: expect must be allow or deny", r.line)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("the table has no rows: add rows such as {who: NAME, call: METHOD, expect: allow}")
	}
	return rows, nil
}

// Check compares a table with the configuration. A row without parameters is about the method with
// any parameters. A call that only learning mode allows counts as denied.
func (d *DryRun) Check(rows []Row, release rpcschema.Release) (failures []Failure, err error) {
	for _, row := range rows {
		became, rule, err := d.decide(row, release)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", row.line, err)
		}
		if became == row.Expect && (row.Rule == "" || row.Rule == rule) {
			continue
		}
		f := Failure{Line: row.line, Who: row.Who, Call: row.Call, Expected: row.Expect, Became: became + ": " + rule}
		if row.Rule != "" {
			f.Expected += ": " + row.Rule
		}
		failures = append(failures, f)
	}
	return failures, nil
}

func (d *DryRun) decide(row Row, release rpcschema.Release) (became, rule string, err error) {
	user, err := d.User(row.Who)
	if err != nil {
		return "", "", err
	}
	var params map[string]any
	if row.Params.Kind != 0 {
		v, err := jsonValue(&row.Params)
		if err != nil {
			return "", "", err
		}
		object, ok := v.(map[string]any)
		if !ok {
			return "", "", fmt.Errorf("params must be a mapping: {name: value}")
		}
		params = object
	}
	c, err := d.Call(user, row.Call, params, row.Params.Kind != 0, release)
	if err != nil {
		return "", "", err
	}
	switch {
	case c.Invalid != nil:
		return "no call", c.Invalid.Error(), nil
	case c.Decision.Rule == policy.Open && !c.Foreign:
		return "open", policy.Open + ": give params", nil
	case c.Allowed() && !c.Decision.Learned:
		return expectAllow, c.Rule(), nil
	}
	return expectDeny, c.Rule(), nil
}

// User returns a user of the configuration.
func (d *DryRun) User(name string) (config.User, error) {
	var names []string
	for _, u := range d.config.Users {
		if u.Name == name {
			return u, nil
		}
		names = append(names, u.Name)
	}
	return config.User{}, fmt.Errorf("there is no user %q: %s", name, config.Suggest(name, names))
}

// jsonValue converts a YAML node to a JSON value. It returns an error for a value that JSON cannot
// represent, or that YAML would interpret differently.
func jsonValue(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if _, twice := object[key.Value]; twice || key.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: %s occurs twice, or is not a name", key.Line, key.Value)
			}
			v, err := jsonValue(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			object[key.Value] = v
		}
		return object, nil
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			v, err := jsonValue(item)
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	case yaml.ScalarNode:
		switch tag := n.ShortTag(); {
		case tag == "!!str":
			return n.Value, nil
		case tag == "!!null":
			return nil, nil
		case tag == "!!bool":
			return strconv.ParseBool(n.Value)
		case slices.Contains([]string{"!!int", "!!float"}, tag) && json.Valid([]byte(n.Value)):
			return json.Number(n.Value), nil
		}
	}
	return nil, fmt.Errorf("line %d: JSON has no such value: quote it if it is a string, and do not use aliases (*NAME)", n.Line)
}
