package rpcschema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExportContainsOnlyTheRelease(t *testing.T) {
	text, err := Default().Export(v2605, func(m *Method) bool { return strings.HasPrefix(m.Name, "bdev_lvol_") })
	require.NoError(t, err)
	d, err := Load(text)
	require.NoError(t, err)
	for _, m := range d.Methods() {
		assert.True(t, strings.HasPrefix(m.Name, "bdev_lvol_"), m.Name)
	}
	create, ok := d.Method("bdev_lvol_create")
	require.True(t, ok)
	assert.Nil(t, create.Param("size"), "v26.05 no longer has it")
	assert.True(t, create.Param("size_in_mib").Required)
	assert.Contains(t, d.Schemas(), "LvolStore", "referenced schemas are exported")
	assert.NotContains(t, d.Schemas(), "NVMfSubsystem", "other schemas are not exported")
	for _, m := range d.Methods() {
		c, err := d.compilerFor(Release{})
		require.NoError(t, err)
		_, err = c.compiled(Release{}, "results", m.Name)
		require.NoError(t, err, "every reference can be resolved")
	}

	text, err = Default().Export(v2401, nil)
	require.NoError(t, err)
	d, err = Load(text)
	require.NoError(t, err)
	_, ok = d.Method("bdev_lvol_check_shallow_copy")
	assert.False(t, ok, "v24.01 did not have it yet")
	create, _ = d.Method("bdev_lvol_create")
	assert.False(t, create.Param("size_in_mib").Required, "v24.01 accepts either parameter")
	driver, _ := d.Method("accel_set_driver")
	assert.True(t, driver.Param("name").Required, "v24.01 requires it")
}

// A member can have the same name as a keyword of JSON Schema. For example, bdev_ftl_get_properties
// returns the member properties.
func TestMembersNamedLikeKeywordsAreExported(t *testing.T) {
	d, err := Load([]byte(`{"methods":[{"name":"m","params":[],"result":{"name":"r","schema":{"type":"object",
		"properties":{"properties":{"type":"object","properties":{"a":{"type":"string"}}},"required":{"type":"boolean"}},"required":["properties"]}}}]}`))
	require.NoError(t, err)
	require.NoError(t, d.ValidateResult("m", map[string]any{"properties": map[string]any{"a": "x"}, "required": true}, v2605))
	require.ErrorContains(t, d.ValidateResult("m", map[string]any{"properties": map[string]any{"b": "x"}}, v2605), "/properties/b: no such member")
	require.ErrorContains(t, d.ValidateResult("m", map[string]any{}, v2605), "/properties: is required")
}

// Objects in parameters are closed, whether they are named or not; objects used only in results
// stay open.
func TestExportClosesParameterObjects(t *testing.T) {
	d, err := Load([]byte(`{"methods":[{"name":"m",
		"params":[{"name":"inline","schema":{"type":"object","properties":{"a":{"type":"string"}}}},{"name":"named","schema":{"$ref":"#/components/schemas/Sent"}}],
		"result":{"name":"r","schema":{"$ref":"#/components/schemas/Answered"}}}],
		"components":{"schemas":{"Sent":{"type":"object","properties":{"a":{"type":"string"}}},"Answered":{"type":"object","properties":{"a":{"type":"string"}}}}}}`))
	require.NoError(t, err)
	text, err := d.Export(v2605, nil)
	require.NoError(t, err)
	d, err = Load(text)
	require.NoError(t, err)
	raw, err := d.rawDocument()
	require.NoError(t, err)
	inline := raw["methods"].([]any)[0].(map[string]any)["params"].([]any)[0].(map[string]any)["schema"]
	assert.Equal(t, false, inline.(map[string]any)["additionalProperties"])
	assert.Equal(t, false, rawSchemas(raw)["Sent"].(map[string]any)["additionalProperties"])
	assert.NotContains(t, rawSchemas(raw)["Answered"], "additionalProperties")
}
