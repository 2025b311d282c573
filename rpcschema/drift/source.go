package drift

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Source is the schema file of an SPDK source tree.
type Source struct {
	Path string `yaml:"-"`
	// Release is read from the tree's VERSION file. It is zero if the tree has no such file.
	Release rpcschema.Release `yaml:"-"`

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
		MaxCount int    `yaml:"max_count"`
	} `yaml:"arrays"`
	// Bitmasks lists the types that are sent as arrays of enum values.
	Bitmasks []struct {
		Name  string `yaml:"name"`
		Enum  string `yaml:"enum"`
		Width int    `yaml:"width"`
	} `yaml:"bitmasks"`
}

// A SourceMethod is one method of a Source.
type SourceMethod struct {
	Name   string        `yaml:"name"`
	Params []SourceParam `yaml:"params"`
}

// A SourceParam is one parameter, or one member of an object, of a Source.
type SourceParam struct {
	Name     string `yaml:"name"`
	Type     string `yaml:"type"`
	Class    string `yaml:"class"` // name of an enum, object, array or bitmask
	Required bool   `yaml:"required"`
}

// A SourceArray is one array type of a Source.
type SourceArray struct {
	Item SourceParam // the item's Name is empty
	Max  int         // 0 means unknown
}

// LoadSource reads the schema of an SPDK source tree. path is the tree or the schema file.
func LoadSource(path string) (*Source, error) {
	candidates := []string{
		filepath.Join(path, "schema", "schema.yaml"), filepath.Join(path, "schema", "schema.json"), path,
	}
	for _, file := range candidates {
		info, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && info.IsDir() {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read SPDK's schema: %w", err)
		}
		s, err := readSource(file)
		if err == nil && file != path {
			s.Release = releaseOf(path)
		}
		return s, err
	}
	return nil, fmt.Errorf("no schema/schema.yaml or schema/schema.json in %s: specify an SPDK source tree of v25.09 or later, or its schema file", path)
}

// releaseOf reads the release of a source tree.
func releaseOf(tree string) rpcschema.Release {
	text, err := os.ReadFile(filepath.Join(tree, "VERSION"))
	if err != nil {
		return rpcschema.Release{}
	}
	r, err := rpcschema.ParseRelease("v" + strings.TrimSpace(string(text)))
	if err != nil {
		return rpcschema.Release{}
	}
	return r
}

func readSource(file string) (*Source, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read SPDK's schema: %w", err)
	}
	s := &Source{}
	if err := yaml.Unmarshal(text, s); err != nil { // JSON is YAML too
		return nil, fmt.Errorf("read SPDK's schema %s: %w", file, err)
	}
	if len(s.Methods) == 0 {
		return nil, fmt.Errorf("read SPDK's schema %s: it lists no methods: specify SPDK's schema file", file)
	}
	s.Path = file
	return s, nil
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

// array returns the array or bitmask of the given name, or nil.
func (s *Source) array(name string) *SourceArray {
	for _, a := range s.Arrays {
		if a.Name == name {
			return &SourceArray{Item: SourceParam{Type: a.ItemType, Class: a.Class}, Max: a.MaxCount}
		}
	}
	for _, b := range s.Bitmasks {
		if b.Name == name {
			return &SourceArray{Item: SourceParam{Type: "enum", Class: b.Enum}, Max: b.Width}
		}
	}
	return nil
}
