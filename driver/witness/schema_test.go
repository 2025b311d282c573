package witness

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The API server drops fields that the resource definition does not contain, so the definition must
// contain and require exactly the fields that this package writes.
func TestResourceDefinitionContainsAllFields(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/components/replication/crd.yaml")
	require.NoError(t, err)
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind, Plural string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &crd))
	require.Len(t, crd.Spec.Versions, 1)
	version := crd.Spec.Versions[0]
	assert.Equal(t, apiVersion, crd.Spec.Group+"/"+version.Name)
	assert.Equal(t, kind, crd.Spec.Names.Kind)
	assert.Equal(t, collection, "/apis/"+apiVersion+"/"+crd.Spec.Names.Plural)

	r, err := decode([]byte(whole))
	require.NoError(t, err)
	text, err = r.encode()
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	for _, part := range []string{"spec", "status"} {
		sameMembers(t, part, version.Schema.OpenAPIV3Schema["properties"].(map[string]any)[part].(map[string]any), object[part])
	}
}

func sameMembers(t *testing.T, path string, schema map[string]any, value any) {
	t.Helper()
	switch value := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		assert.Equal(t, slices.Sorted(maps.Keys(value)), slices.Sorted(maps.Keys(properties)), path)
		var required []string
		for _, name := range schema["required"].([]any) {
			required = append(required, name.(string))
		}
		assert.ElementsMatch(t, slices.Collect(maps.Keys(value)), required, path)
		for name, member := range value {
			if property, ok := properties[name].(map[string]any); ok {
				sameMembers(t, path+"."+name, property, member)
			}
		}
	case []any:
		assert.Equal(t, "array", schema["type"], path)
		sameMembers(t, path+"[]", schema["items"].(map[string]any), value[0])
	case string:
		assert.Equal(t, "string", schema["type"], path)
	case float64:
		assert.Equal(t, "integer", schema["type"], path)
	case bool:
		assert.Equal(t, "boolean", schema["type"], path)
	default:
		assert.Fail(t, "unexpected value", "%s: %T", path, value)
	}
}
