package schemacmd_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/sample/broken"
	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type noTarget struct{}

func (noTarget) AddFlags(*cobra.Command) {}
func (noTarget) Flags() string           { return "" }
func (noTarget) Connect() (schemacmd.Connection, error) {
	return spdkrpc.NewSocket("/nonexistent"), nil
}

func run(args ...string) (string, error) {
	cmd := &cobra.Command{Use: "spdk-schema"}
	schemacmd.Add(cmd, "spdk-schema", noTarget{})
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	// If the arguments were nil, cobra would use the arguments of the test binary.
	cmd.SetArgs(append([]string{}, args...))
	err := cmd.Execute()
	return out.String(), err
}

// For each method of each release, an independent JSON Schema validator accepts the same calls as
// this project's validator.
func TestJSONSchemasAreAsStrictAsSPDK(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		dir := filepath.Join(t.TempDir(), "schemas")
		_, err := run("export", "--json-schema", dir, "--spdk-version", release)
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(t, err)
		doc, r := rpcschema.Default(), rpcschema.MustRelease(release)
		checked, refused := 0, 0
		for _, m := range doc.OfSPDK() {
			if !m.Has(r) {
				assert.NoFileExists(t, filepath.Join(dir, m.Name+".json"))
				continue
			}
			checked++
			schema := compile(t, filepath.Join(dir, m.Name+".json"), "")
			result := compile(t, filepath.Join(dir, m.Name+".json"), "#/$defs/result")
			for _, full := range []bool{false, true} {
				k := sample.Maker{Document: doc, Release: r, Full: full}
				assert.NoError(t, schema.Validate(plain(t, k.Params(m))), "%s %s", release, m.Name)
				for _, b := range broken.Calls(k, m) {
					refused++
					assert.Error(t, schema.Validate(plain(t, b.Params)), "%s %s: %s at %s", release, m.Name, b.What, b.Pointer)
				}
				assert.NoError(t, result.Validate(plain(t, k.Result(m))), "%s result of %s", release, m.Name)
			}
		}
		assert.Len(t, files, checked, "no other files are written")
		assert.Greater(t, refused, 5000)
	}
}

func compile(t *testing.T, file, fragment string) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	s, err := c.Compile(file + fragment)
	require.NoError(t, err)
	return s
}

// plain converts a value to the form that a JSON Schema validator expects.
func plain(t *testing.T, v any) any {
	text, err := jsonrpc.Marshal(v)
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	require.NoError(t, err)
	return value
}

func TestExportContainsOnlySPDKMethods(t *testing.T) {
	out, err := run("export", "--spdk-version", "v26.05")
	require.NoError(t, err)
	assert.NotContains(t, out, "spdkgate_")
	assert.NotContains(t, out, `"size"`+": {\n      \"title\": \"BdevLvolCreateSize\"", "v26.05 no longer has it")
	out, err = run("export", "--own")
	require.NoError(t, err)
	assert.Contains(t, out, `"name": "spdkgate_lvol_snapshot"`)

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = run("export", "--json-schema", file)
	require.ErrorContains(t, err, "--json-schema")
}

// Objects in parameters are closed in the exported document, so generated clients and other
// validators are also strict.
func TestExportedParametersAreClosed(t *testing.T) {
	out, err := run("export", "--spdk-version", "v26.05")
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
	require.NoError(t, err)
	document := value.(map[string]any)
	schemas := document["components"].(map[string]any)["schemas"].(map[string]any)
	objects := 0
	seen := map[string]bool{}
	var look func(where string, v any)
	look = func(where string, v any) {
		s, ok := v.(map[string]any)
		if !ok {
			return
		}
		if ref, ok := s["$ref"].(string); ok && !seen[ref] {
			seen[ref] = true
			name := ref[strings.LastIndexByte(ref, '/')+1:]
			look(name, schemas[name])
		}
		if members, ok := s["properties"].(map[string]any); ok {
			objects++
			assert.Contains(t, s, "additionalProperties", where)
			for name, member := range members {
				look(where+"."+name, member)
			}
		}
		look(where, s["items"])
		for _, keyword := range []string{"oneOf", "anyOf"} {
			forms, _ := s[keyword].([]any)
			for _, form := range forms {
				look(where, form)
			}
		}
	}
	for _, m := range document["methods"].([]any) {
		method := m.(map[string]any)
		for _, p := range method["params"].([]any) {
			param := p.(map[string]any)
			look(method["name"].(string)+"."+param["name"].(string), param["schema"])
		}
	}
	assert.Greater(t, objects, 5)
}
