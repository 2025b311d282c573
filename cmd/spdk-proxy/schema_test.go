package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/schemacmd"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// schema runs `spdk-proxy schema …` in this process.
func schema(args ...string) (string, error) {
	root := newRoot()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs(append([]string{"schema"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestSchemaCommandsListAndDescribeMethods(t *testing.T) {
	out, err := schema("list", "bdev_lvol_*", "--spdk-version", "v24.01")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^bdev_lvol_create +Create a logical volume`, out)
	assert.NotContains(t, out, "bdev_lvol_check_shallow_copy", "v24.01 did not have it")

	out, err = schema("show", "bdev_lvol_create")
	require.NoError(t, err)
	for _, part := range []string{"size_in_mib", "required", "PARAMETERS", "RESULT", "ERRORS", "EXAMPLE"} {
		assert.Contains(t, out, part)
	}
	_, err = schema("show", "bdev_lvol_creat")
	require.ErrorContains(t, err, "did you mean bdev_lvol_create?")
	assert.Equal(t, exitUsage, exitCode(err))
	_, err = schema("list", "nothing_like_it")
	require.ErrorContains(t, err, "no method matches")
	_, err = schema("list", "--spdk-version", "26")
	require.ErrorContains(t, err, "write it as v26.05")
}

func TestSchemaCheckReportsViolations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(`{"method":"spdk_get_version"}
{"method":"bdev_lvol_create","params":{"lvol_name":"a","size_in_mib":"1","lvs_name":"l"},"result":"u"}
`), 0o600))
	out, err := schema("check", "--spdk-version", "v26.05", file)
	require.ErrorIs(t, err, schemacmd.ErrFound)
	assert.Equal(t, exitFailed, exitCode(err))
	assert.Contains(t, out, file+":2: bdev_lvol_create: /params/size_in_mib")
	_, err = schema("check", filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
	assert.Equal(t, exitUsage, exitCode(err))
}

func TestSchemaDriftReportsDifferences(t *testing.T) {
	target, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	out, err := schema("drift", "--socket", target.Socket())
	require.NoError(t, err, out)
	assert.Contains(t, out, "0 unexplained")

	tree := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(tree, "schema"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "schema", "schema.yaml"), []byte("methods: [{name: brand_new, params: []}]"), 0o600))
	_, err = schema("drift", tree)
	require.ErrorContains(t, err, "--spdk-version")
	out, err = schema("drift", tree, "--spdk-version", "v26.05")
	require.ErrorIs(t, err, schemacmd.ErrFound)
	assert.Contains(t, out, "brand_new")
	assert.Contains(t, out, "v26.05")

	require.NoError(t, os.WriteFile(filepath.Join(tree, "VERSION"), []byte("25.09.1-pre\n"), 0o600))
	out, err = schema("drift", tree)
	require.ErrorIs(t, err, schemacmd.ErrFound)
	assert.Contains(t, out, "(v25.09)", "from the source tree's VERSION")
	out, err = schema("drift", tree, "--spdk-version", "v26.05")
	require.ErrorIs(t, err, schemacmd.ErrFound)
	assert.Contains(t, out, "(v26.05)", "from the flag")
}

func TestSchemaExportWritesDocuments(t *testing.T) {
	out, err := schema("export", "--spdk-version", "v26.05")
	require.NoError(t, err)
	d, err := rpcschema.Load([]byte(out))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(d.Methods()), 296)
}
