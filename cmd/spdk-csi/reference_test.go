package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
)

var update = flag.Bool("update", false, "write the reference of the manual")

// docs/csi-reference.md is generated from the parameters in package class, the configuration types
// with their comments, and the flags. `make generate` writes the page.
func TestReferenceIsCurrent(t *testing.T) {
	t.Setenv("NODE_ID", "") // a flag's default
	const page = "../../docs/csi-reference.md"
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("\n## StorageClass parameters\nA StorageClass may have these parameters, and the parameters of Kubernetes' sidecars, which begin with `csi.storage.k8s.io/`. A VolumeAttributesClass may have the parameters marked with *.\n\n| Parameter | Example | Values | Meaning |\n|---|---|---|---|\n")
	for _, d := range class.Reference() {
		star := ""
		if d.Mutable {
			star = "*"
		}
		fmt.Fprintf(&b, "| `%s`%s | `%s` | %s | %s |\n", d.Name, star, d.Example, cell(d.Values), cell(d.Meaning))
	}
	b.WriteString("\nA VolumeSnapshotClass has only the parameters of Kubernetes' sidecars.\n")
	b.WriteString("\n## config.json\nThe file is in the ConfigMap `spdkcsi-cm`. Unknown keys are errors. The controller applies changes within seconds of a change to the mounted file.\n")
	types := typesOf(t, "../../driver/config")
	for _, s := range []struct{ heading, name string }{
		{"", "Config"}, {"An entry of nodes", "Target"}, {"An entry of addresses", "Address"}, {"placement", "Placement"}, {"snapshots", "Snapshots"}, {"check", "Check"},
	} {
		if s.heading != "" {
			b.WriteString("\n### " + s.heading + "\n")
		} else {
			b.WriteString("\n")
		}
		writeKeys(t, &b, types[s.name])
	}
	b.WriteString("\n## secret.json\nThe file is in the Secret `spdkcsi-secret`. It contains one list, `rpcTokens`, with an entry for each storage server. The driver reads the file for every call.\n\n")
	writeKeys(t, &b, types["Credential"])
	b.WriteString("\n## Flags of spdk-csi\n")
	cmd := command(io.Discard)
	writeFlags(&b, cmd.Flags())
	writeCommands(&b, cmd)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
		return
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(got), "run: make generate")
}

const referenceHead = `# Reference of spdk-csi

This page lists the parameters of classes, the keys of ` + "`config.json` and `secret.json`" + `, and the flags. ` + "`make generate`" + ` generates it from the code.
`

// writeCommands describes the subcommands of a command. A command that only groups others is
// omitted.
func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		switch {
		case sub.Name() == "help" || sub.Name() == "completion":
		case sub.HasSubCommands():
			writeCommands(b, sub)
		default:
			fmt.Fprintf(b, "\n### %s\n%s: `%s %s`.\n", sub.CommandPath(), sub.Short, cmd.CommandPath(), useOf(sub))
			writeFlags(b, sub.Flags())
		}
	}
}

func useOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.Use, "|", "or") }

// cell formats text for a table cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

func writeFlags(b *strings.Builder, fs *pflag.FlagSet) {
	b.WriteString("\n| Flag | Default | Meaning |\n|---|---|---|\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		value := f.DefValue
		if value == "" || value == "[]" || value == "false" && f.Value.Type() == "bool" {
			value = ""
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s |\n", f.Name, value, cell(f.Usage))
	})
}

// A key describes one key of a JSON object.
type key struct {
	goName, name, comment string
}

// typesOf returns the keys of the structs declared in a directory, by type name.
func typesOf(t *testing.T, folder string) map[string][]key {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	all := map[string][]key{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					all[spec.Name.Name] = keysOf(s)
				}
			}
			return true
		})
	}
	return all
}

func keysOf(s *ast.StructType) (keys []key) {
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		keys = append(keys, key{f.Names[0].Name, name, f.Doc.Text()})
	}
	return keys
}

// goLink matches a doc link, which only readers of the code can follow.
var goLink = regexp.MustCompile(` ?\(?\[[a-zA-Z.]+\]\)?`)

// writeKeys writes a table of keys. A key without a comment shares the comment of the previous key.
func writeKeys(t *testing.T, b *strings.Builder, keys []key) {
	t.Helper()
	require.NotEmpty(t, keys)
	require.NotEmpty(t, keys[0].comment)
	b.WriteString("| Key | Meaning |\n|---|---|\n")
	for i := 0; i < len(keys); {
		n := 1
		for i+n < len(keys) && keys[i+n].comment == "" {
			n++
		}
		var named []string
		for _, k := range keys[i : i+n] {
			named = append(named, "`"+k.name+"`")
		}
		comment := goLink.ReplaceAllString(strings.Join(strings.Fields(keys[i].comment), " "), "")
		for _, k := range keys {
			comment = regexp.MustCompile(`\b`+k.goName+`\b`).ReplaceAllString(comment, "`"+k.name+"`")
		}
		// Remove the key's name from the beginning of the comment, because the row already contains
		// it.
		comment = regexp.MustCompile("^(`\\w+`( and `\\w+`)?) (is|are) ").ReplaceAllString(comment, "")
		fmt.Fprintf(b, "| %s | %s |\n", strings.Join(named, ", "), cell(comment))
		i += n
	}
}
