package deploy

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	goyaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	csiconfig "github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/proxy/config"
)

var update = flag.Bool("update", false, "write generated files")

var charts = []string{chart, proxyChart}

// updated compares a file with its expected content, or writes it if -update is given.
func updated(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "run: go test ./deploy -run %s -update", t.Name())
}

// Each chart's README.md lists all values, with their defaults and the comments from values.yaml.
func TestChartReadmeListsAllValues(t *testing.T) {
	for _, chart := range charts {
		source, err := os.ReadFile(chart + "/values.yaml")
		require.NoError(t, err)
		var document goyaml.Node
		require.NoError(t, goyaml.Unmarshal(source, &document))
		var table strings.Builder
		table.WriteString("| Value | Default | Meaning |\n|---|---|---|\n")
		for _, row := range valueRows(t, "", document.Content[0]) {
			fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", row[0], row[1], row[2])
		}
		readme, err := os.ReadFile(chart + "/README.md")
		require.NoError(t, err)
		const mark = "-update -->\n"
		before, _, ok := strings.Cut(string(readme), mark)
		require.True(t, ok)
		updated(t, chart+"/README.md", before+mark+table.String())
	}
}

// A chart cannot read files outside its directory, so it contains copies of the alerts and
// dashboards.
func TestChartCopiesAreCurrent(t *testing.T) {
	rules, err := os.ReadFile("monitoring/spdk-proxy.rules.yaml")
	require.NoError(t, err)
	_, groups, ok := strings.Cut(string(rules), "\ngroups:\n")
	require.True(t, ok)
	parts := strings.SplitAfter(strings.ReplaceAll(groups, "\n  - name: ", "\n\x00  - name: "), "\x00")
	for _, chart := range charts {
		name := strings.TrimPrefix(chart, "helm/")
		i := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, "  - name: "+name+"\n") })
		require.GreaterOrEqual(t, i, 0, "no group %s", name)
		updated(t, chart+"/files/rules.yaml", "groups:\n"+strings.TrimSuffix(parts[i], "\x00"))
	}
	for copied, original := range map[string]string{
		chart + "/files/spdk-csi-volumes.dashboard.json":  "monitoring/spdk-csi-volumes.dashboard.json",
		proxyChart + "/files/spdk-proxy.dashboard.json":   "monitoring/spdk-proxy.dashboard.json",
		proxyChart + "/files/spdk-target.dashboard.json":  "monitoring/spdk-target.dashboard.json",
		proxyChart + "/files/spdk-tenants.dashboard.json": "monitoring/spdk-tenants.dashboard.json",
	} {
		text, err := os.ReadFile(original)
		require.NoError(t, err)
		updated(t, copied, string(text))
	}
}

// passedOn lists values that become parts of Kubernetes objects and are checked by the API server.
var passedOn = []string{
	"networkPolicy.metricsFrom[].ipBlock", "networkPolicy.metricsFrom[].namespaceSelector", "networkPolicy.metricsFrom[].podSelector",
	"networkPolicy.from[].ipBlock", "networkPolicy.from[].namespaceSelector", "networkPolicy.from[].podSelector",
	"node.extraVolumes[]", "node.extraVolumeMounts[]",
	"global", // Helm adds it to every chart
}

// The schemas reject unknown keys at every level, and contain all keys in values.yaml.
func TestChartSchemaIsClosed(t *testing.T) {
	for _, chart := range charts {
		var schema, values map[string]any
		for file, into := range map[string]*map[string]any{"/values.schema.json": &schema, "/values.yaml": &values} {
			text, err := os.ReadFile(chart + file)
			require.NoError(t, err)
			require.NoError(t, yaml.Unmarshal(text, into))
		}
		testClosed(t, chart, "", schema)
		testKnown(t, chart, "", schema, values)
	}
}

func testClosed(t *testing.T, chart, path string, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	if schema["type"] == "object" && !slices.Contains(passedOn, path) {
		assert.Contains(t, schema, "additionalProperties", "%s: %s accepts unknown keys", chart, path)
		assert.NotEqual(t, true, schema["additionalProperties"], "%s: %s accepts unknown keys", chart, path)
	}
	for name, property := range properties {
		if p, ok := property.(map[string]any); ok {
			testClosed(t, chart, strings.TrimPrefix(path+"."+name, "."), p)
		}
	}
	forms, _ := schema["anyOf"].([]any)
	for _, form := range forms {
		testClosed(t, chart, path, form.(map[string]any))
	}
	for key, suffix := range map[string]string{"items": "[]", "additionalProperties": ".*"} {
		if inner, ok := schema[key].(map[string]any); ok {
			testClosed(t, chart, path+suffix, inner)
		}
	}
}

func testKnown(t *testing.T, chart, path string, schema, values map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for name, value := range values {
		property, ok := properties[name].(map[string]any)
		if !ok {
			_, free := schema["additionalProperties"].(map[string]any)
			assert.True(t, free, "%s: the schema lacks %s.%s", chart, path, name)
			continue
		}
		if inner, ok := value.(map[string]any); ok {
			testKnown(t, chart, path+"."+name, property, inner)
		}
	}
}

// The schemas for the values contain all keys that the programs read, except those that the charts
// themselves set.
func TestChartSchemasMatchTheConfiguration(t *testing.T) {
	properties := func(chart string) map[string]any {
		var schema map[string]any
		text, err := os.ReadFile(chart + "/values.schema.json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &schema))
		return schema["properties"].(map[string]any)
	}
	of := properties(chart)
	testKeys(t, "storageServers", of["storageServers"].(map[string]any)["items"].(map[string]any), reflect.TypeFor[csiconfig.Target](), nil)
	testKeys(t, "config", of["config"].(map[string]any), reflect.TypeFor[csiconfig.Config](), []string{"config.nodes"})
	testKeys(t, "config", properties(proxyChart)["config"].(map[string]any), reflect.TypeFor[config.Config](), []string{
		"config.listen", "config.listen_unix", "config.tls", "config.metrics.listen", "config.target.socket", "config.target.save", "config.target.keys", "config.target.freeze",
		"config.log.calls", // the container's standard error is what a cluster collects
	})
}

// testKeys compares a schema's properties with a struct's fields, at every level.
func testKeys(t *testing.T, path string, schema map[string]any, of reflect.Type, except []string) {
	var want []string
	properties := schema["properties"].(map[string]any)
	for f := range of.Fields() {
		name, _, _ := strings.Cut(cmp.Or(f.Tag.Get("json"), f.Tag.Get("yaml")), ",")
		if name == "" || slices.Contains(except, path+"."+name) {
			continue
		}
		want = append(want, name)
		property, _ := properties[name].(map[string]any)
		inner := f.Type
		for property != nil && inner.Kind() != reflect.Struct {
			switch inner.Kind() {
			case reflect.Slice:
				property, _ = property["items"].(map[string]any)
			case reflect.Map:
				property, _ = property["additionalProperties"].(map[string]any)
			case reflect.Pointer:
			default:
				property = nil
			}
			if property != nil {
				inner = inner.Elem()
			}
		}
		if forms, ok := property["anyOf"].([]any); ok {
			property = forms[len(forms)-1].(map[string]any)
		}
		if property["properties"] != nil {
			testKeys(t, path+"."+name, property, inner, except)
		}
	}
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(properties)), path)
}

// valueRows returns the values with a "# --" comment: name, default and comment.
func valueRows(t *testing.T, prefix string, n *goyaml.Node) (rows [][3]string) {
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		comment, documented := strings.CutPrefix(key.HeadComment, "# -- ")
		if !documented {
			require.Equal(t, goyaml.MappingNode, value.Kind, "%s%s has no comment that begins with # --", prefix, key.Value)
			rows = append(rows, valueRows(t, prefix+key.Value+".", value)...)
			continue
		}
		var v any
		require.NoError(t, value.Decode(&v))
		text, err := json.Marshal(v)
		require.NoError(t, err)
		rows = append(rows, [3]string{prefix + key.Value, strings.ReplaceAll(string(text), "|", `\|`), comment})
	}
	return rows
}
