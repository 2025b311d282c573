package drift

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// A Source is the schema file of an SPDK source tree.
type Source struct {
	Methods []SourceMethod `yaml:"methods"`
	Enums   []struct {
		Name   string `yaml:"name"`
		Fields []struct {
			Name string `yaml:"name"`
		} `yaml:"fields"`
	} `yaml:"enums"`
	Objects []struct {
		Name   string        `yaml:"name"`
		Fields []SourceParam `yaml:"fields"`
	} `yaml:"objects"`
	Arrays []struct {
		Name     string `yaml:"name"`
		ItemType string `yaml:"item_type"`
		Class    string `yaml:"class"`
	} `yaml:"arrays"`
}

// A SourceMethod is one method of a Source.
type SourceMethod struct {
	Name    string        `yaml:"name"`
	Private bool          `yaml:"private"`
	Params  []SourceParam `yaml:"params"`
}

// A SourceParam is one parameter, or one member of an object, of a Source.
type SourceParam struct {
	Name       string `yaml:"name"`
	Type       string `yaml:"type"`
	Class      string `yaml:"class"` // names an enum, an object or an array
	Required   bool   `yaml:"required"`
	Deprecated any    `yaml:"deprecated"`
}

// LoadSource reads an SPDK source tree's schema: path is the tree, or the file.
func LoadSource(path string) (*Source, error) {
	candidates := []string{
		filepath.Join(path, "schema", "schema.yaml"), filepath.Join(path, "schema", "schema.json"), path,
	}
	for _, file := range candidates {
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && info.IsDir() {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read SPDK's schema: %w", err)
		}
		s := &Source{}
		if err := yaml.Unmarshal(text, s); err != nil { // JSON is YAML too
			return nil, fmt.Errorf("read SPDK's schema %s: %w", file, err)
		}
		if len(s.Methods) == 0 {
			return nil, fmt.Errorf("read SPDK's schema %s: it lists no methods", file)
		}
		return s, nil
	}
	return nil, fmt.Errorf("no schema/schema.yaml or schema/schema.json in %s: SPDK has one since v25.09", path)
}

func (s *Source) enum(name string) []string {
	for _, e := range s.Enums {
		if e.Name == name {
			values := make([]string, len(e.Fields))
			for i, f := range e.Fields {
				values[i] = f.Name
			}
			return values
		}
	}
	return nil
}

func (s *Source) object(name string) []SourceParam {
	for _, o := range s.Objects {
		if o.Name == name {
			return o.Fields
		}
	}
	return nil
}

// array gives the item of a named array as if it were a parameter.
func (s *Source) array(name string) (SourceParam, bool) {
	for _, a := range s.Arrays {
		if a.Name == name {
			return SourceParam{Type: a.ItemType, Class: a.Class}, true
		}
	}
	return SourceParam{}, false
}
