package config

import (
	"reflect"
	"slices"
	"strings"
)

// Files lists the configuration file and all files that it names, in keys that end in _file. A
// change to any of these files causes a reload.
func (c *Config) Files() []string {
	files := []string{c.file}
	c.collectFiles(reflect.ValueOf(c).Elem(), &files)
	slices.Sort(files)
	return slices.Compact(files)
}

func (c *Config) collectFiles(v reflect.Value, files *[]string) {
	switch v.Kind() {
	case reflect.Struct:
		for f, value := range v.Fields() {
			switch name := f.Tag.Get("yaml"); {
			case name == "":
			case strings.HasSuffix(name, "_file") && value.Kind() == reflect.String:
				if path, err := c.path(value.String()); err == nil && value.String() != "" {
					*files = append(*files, path)
				}
			default:
				c.collectFiles(value, files)
			}
		}
	case reflect.Slice:
		for _, item := range v.Seq2() {
			c.collectFiles(item, files)
		}
	case reflect.Map:
		for _, value := range v.Seq2() {
			c.collectFiles(value, files)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			c.collectFiles(v.Elem(), files)
		}
	}
}
