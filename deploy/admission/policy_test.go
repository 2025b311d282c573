// Package admission tests whether an API server would admit manifests and charts. It evaluates the
// ValidatingAdmissionPolicies and the validations of the resource definition in deploy/kubernetes:
// CEL over the changed object, its previous version and the request. It compares the charts' pods
// with the Pod Security Standards.
package admission

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type policy struct {
	Spec struct {
		MatchConditions []struct{ Name, Expression string }
		Variables       []struct{ Name, Expression string }
		Validations     []struct{ Expression, Message string }
	}
}

func load(t *testing.T) policy {
	return loadFrom(t, "../kubernetes/components/node-lifecycle/policy.yaml")
}

func loadFrom(t *testing.T, file string) (p policy) {
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(source), "\n---\n")
	require.NoError(t, yaml.Unmarshal([]byte(first), &p))
	require.NotEmpty(t, p.Spec.Validations)
	return p
}

func evaluate(t *testing.T, expression string, of map[string]any) ref.Val {
	t.Helper()
	var variables []cel.EnvOption
	for name := range of {
		variables = append(variables, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(variables...)
	require.NoError(t, err)
	ast, issues := env.Compile(expression)
	require.NoError(t, issues.Err(), expression)
	program, err := env.Program(ast)
	require.NoError(t, err)
	value, _, err := program.Eval(of)
	require.NoError(t, err, expression)
	return value
}

// decide evaluates a policy for a change. matched reports whether the policy applies to the change;
// refused contains the messages of all rules that refuse it.
func decide(t *testing.T, p policy, former, changed, request string) (matched bool, refused []string) {
	t.Helper()
	of := map[string]any{"variables": map[string]any{}}
	for name, text := range map[string]string{"oldObject": former, "object": changed, "request": request} {
		var o any
		require.NoError(t, json.Unmarshal([]byte(text), &o), text)
		of[name] = o
	}
	for _, c := range p.Spec.MatchConditions {
		if evaluate(t, c.Expression, of) != types.True {
			return false, nil
		}
	}
	for _, v := range p.Spec.Variables {
		of["variables"].(map[string]any)[v.Name] = evaluate(t, v.Expression, of)
	}
	for _, v := range p.Spec.Validations {
		if evaluate(t, v.Expression, of) != types.True {
			refused = append(refused, v.Message)
		}
	}
	return true, refused
}

const (
	plugin   = `{"userInfo": {"username": "system:serviceaccount:spdkcsi:spdkcsi-node-sa", "extra": {"authentication.kubernetes.io/node-name": ["node-1"]}}}`
	ours     = `{"key": "csi.spdk.io/agent-not-ready", "effect": "NoExecute"}`
	cordoned = `{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}`
)

func node(metadata, spec string) string {
	return `{"metadata": {"name": "node-1"` + metadata + `}, "spec": {` + spec + `}}`
}

func TestPolicyAllowsOnlyTheTaintChange(t *testing.T) {
	p := load(t)
	tainted := node("", `"taints": [`+cordoned+`,`+ours+`]`)
	untainted := node("", `"taints": [`+cordoned+`]`)
	for name, c := range map[string]struct {
		former, changed, request string
		says                     string // empty if permitted
	}{
		"removes its taint":              {tainted, untainted, plugin, ""},
		"removes the only taint":         {node("", `"taints": [`+ours+`]`), node("", ``), plugin, ""},
		"removes it, an empty list left": {node("", `"taints": [`+ours+`]`), node("", `"taints": []`), plugin, ""},
		"with labels":                    {node(`, "labels": {"a": "b"}, "annotations": {"c": "d"}`, `"providerID": "x", "taints": [`+ours+`]`), node(`, "labels": {"a": "b"}, "annotations": {"c": "d"}`, `"providerID": "x"`), plugin, ""},
		"on another node":                {tainted, untainted, strings.Replace(plugin, "node-1", "node-2", 1), "the node on which it runs"},
		"with a token without a node":    {tainted, untainted, strings.Replace(plugin, "authentication.kubernetes.io/node-name", "x", 1), "the node on which it runs"},
		"removes another taint":          {tainted, node("", `"taints": [`+ours+`]`), plugin, "only remove the taint"},
		"removes all taints":             {tainted, node("", ``), plugin, "only remove the taint"},
		"adds a taint":                   {untainted, node("", `"taints": [`+cordoned+`, {"key": "x", "effect": "NoExecute"}]`), plugin, "only remove the taint"},
		"adds the startup taint":         {untainted, tainted, plugin, "only remove the taint"},
		"changes another taint":          {tainted, node("", `"taints": [`+strings.Replace(cordoned, "NoSchedule", "PreferNoSchedule", 1)+`]`), plugin, "only remove the taint"},
		"uncordons":                      {node("", `"unschedulable": true, "taints": [`+ours+`]`), node("", ``), plugin, "a node's spec"},
		"cordons":                        {node("", ``), node("", `"unschedulable": true`), plugin, "a node's spec"},
		"changes a label":                {node(`, "labels": {"a": "b"}`, ``), node(`, "labels": {"a": "c"}`, ``), plugin, "metadata"},
		"adds a label":                   {node(``, ``), node(`, "labels": {"a": "c"}`, ``), plugin, "metadata"},
		"removes an annotation":          {node(`, "annotations": {"a": "b"}`, ``), node(``, ``), plugin, "metadata"},
		"adds a finalizer":               {node(``, ``), node(`, "finalizers": ["x/y"]`, ``), plugin, "metadata"},
		"sets the provider's id":         {node(``, ``), node(``, `"providerID": "x"`), plugin, "a node's spec"},
	} {
		t.Run(name, func(t *testing.T) {
			matched, refused := decide(t, p, c.former, c.changed, c.request)
			require.True(t, matched)
			if c.says == "" {
				assert.Empty(t, refused)
				return
			}
			require.NotEmpty(t, refused)
			assert.Contains(t, strings.Join(refused, "; "), c.says)
		})
	}
	matched, _ := decide(t, p, tainted, tainted, strings.Replace(plugin, "spdkcsi-node-sa", "other", 1))
	assert.False(t, matched, "other users' changes are none of its business")
}
