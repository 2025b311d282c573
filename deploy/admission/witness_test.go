package admission

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// A rule in the schema rejects certain values, or certain changes to a value.
type rule struct{ Rule, Message string }

type schema struct {
	Validations []rule `json:"x-kubernetes-validations"`
	Properties  map[string]schema
}

func witnessSchema(t *testing.T) schema {
	source, err := os.ReadFile("../kubernetes/components/replication/crd.yaml")
	require.NoError(t, err)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(source, &crd))
	require.Len(t, crd.Spec.Versions, 1)
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// refusals returns the messages of the rules that refuse a change. As in the API server, a rule
// about changes applies only if both values exist.
func (s schema) refusals(t *testing.T, former, changed map[string]any) (refused []string) {
	for _, v := range s.Validations {
		if evaluate(t, v.Rule, map[string]any{"self": changed, "oldSelf": former}) != types.True {
			refused = append(refused, v.Message)
		}
	}
	for name, property := range s.Properties {
		before, _ := former[name].(map[string]any)
		if after, ok := changed[name].(map[string]any); ok && before != nil {
			refused = append(refused, property.refusals(t, before, after)...)
		}
	}
	return refused
}

const witness = `{"spec": {"replicas": [{"number": 0}, {"number": 1}], "writer": {"node": "node-1", "generation": 2}},
	"status": {"epoch": 5, "inSync": [0], "clean": true, "logged": [1], "discarded": [], "held": {"generation": 2, "replicas": [0, 1]}}}`

// objectOf decodes an object. As in the API server, whole numbers become integers.
func objectOf(t *testing.T, text string) map[string]any {
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &o), text)
	return integers(o).(map[string]any)
}

func integers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name := range value {
			value[name] = integers(value[name])
		}
	case []any:
		for i := range value {
			value[i] = integers(value[i])
		}
	case float64:
		return int64(value)
	}
	return value
}

// The resource definition rejects every witness transition that driver/replica never makes.
func TestImpossibleWitnessTransitionsAreRejected(t *testing.T) {
	s := witnessSchema(t)
	fresh := witness[:strings.Index(witness, ",\n")] + `}`
	created := fresh[:len(fresh)-1] + `, "status": {"epoch": 1, "inSync": [0, 1], "clean": true, "logged": [], "discarded": [], "held": {"generation": 2, "replicas": []}}}`
	unused := strings.NewReplacer(`"node-1"`, `""`, `[0, 1]}}`, `[]}}`).Replace(witness)
	const kept = `"inSync": [0] -> "inSync": [1]; "epoch": 5 -> "epoch": 6; "clean": true -> "clean": false; "logged": [1] -> "logged": []; "discarded": [] -> "discarded": [0]`
	for name, c := range map[string]struct {
		former, changes string
		says            string // empty if permitted
	}{
		"nothing":                             {witness, ``, ""},
		"start":                               {witness, `"epoch": 5 -> "epoch": 6; "clean": true -> "clean": false`, ""},
		"drop":                                {created, `"epoch": 1 -> "epoch": 2; "inSync": [0, 1] -> "inSync": [1]`, ""},
		"list a held replica":                 {witness, `"epoch": 5 -> "epoch": 6; "inSync": [0] -> "inSync": [0, 1]; "logged": [1] -> "logged": []`, ""},
		"keep":                                {unused, kept, ""},
		"keep while published":                {witness, `"epoch": 5 -> "epoch": 6; "inSync": [0] -> "inSync": [2]; {"number": 1} -> {"number": 2}; [1], "disc -> [], "disc; "discarded": [] -> "discarded": [0]`, "was held before"},
		"keep without discarding the others":  {unused, strings.Replace(kept, `"discarded": [0]`, `"discarded": []`, 1), "was held before"},
		"keep without an epoch":               {unused, strings.Replace(kept, `; "epoch": 5 -> "epoch": 6`, "", 1), "has a new epoch"},
		"discards a replica that is in sync":  {witness, `"discarded": [] -> "discarded": [0]`, "not in logged or discarded"},
		"discards no replica of the volume":   {witness, `"discarded": [] -> "discarded": [2]`, "only replicas of spec"},
		"publish":                             {witness, `node-1", "generation": 2 -> node-2", "generation": 3`, ""},
		"create":                              {fresh, fresh + ` -> ` + created, ""},
		"add":                                 {witness, `{"number": 1} -> {"number": 1}, {"number": 2}`, ""},
		"the epoch decreases":                 {witness, `"epoch": 5 -> "epoch": 4`, "steps of one"},
		"the epoch jumps":                     {witness, `"epoch": 5 -> "epoch": 7`, "steps of one"},
		"the set changes without an epoch":    {created, `"inSync": [0, 1] -> "inSync": [1]`, "has a new epoch"},
		"a start without an epoch":            {witness, `"clean": true -> "clean": false`, "a start has a new epoch"},
		"lists a replica that is not held":    {witness, `"epoch": 5 -> "epoch": 6; "inSync": [0] -> "inSync": [0, 2]; {"number": 1} -> {"number": 1}, {"number": 2}`, "was held before"},
		"logs a replica that is in sync":      {witness, `"logged": [1] -> "logged": [0]`, "not in logged or discarded"},
		"lists no replica of the volume":      {witness, `"logged": [1] -> "logged": [2]`, "only replicas of spec"},
		"removes a replica that is in sync":   {witness, `{"number": 0},  -> `, "only replicas of spec"},
		"removes a replica that is held":      {witness, `, {"number": 1} -> ; "logged": [1] -> "logged": []`, "held is of"},
		"a fenced mirror changes the status":  {witness, `node-1", "generation": 2 -> node-2", "generation": 3; "logged": [1] -> "logged": []`, "writer's generation"},
		"holds for a later generation":        {witness, `"held": {"generation": 2 -> "held": {"generation": 3`, "held is of"},
		"the generation decreases":            {witness, `node-1", "generation": 2 -> node-2", "generation": 1`, "increases by one"},
		"another node in the same generation": {witness, `node-1 -> node-2`, "increases by one"},
		"the status is removed":               {created, created + ` -> ` + fresh, "cannot be removed"},
		"created with another epoch":          {fresh, fresh + ` -> ` + strings.Replace(created, `"epoch": 1`, `"epoch": 2`, 1), "a new volume"},
		"added before it is created":          {fresh, `{"number": 1} -> {"number": 1}, {"number": 2}`, "after the volume was created"},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.former
			for change := range strings.SplitSeq(c.changes, "; ") {
				from, to, _ := strings.Cut(change, " -> ")
				require.Contains(t, text, from)
				text = strings.Replace(text, from, to, 1)
			}
			refused := s.refusals(t, objectOf(t, c.former), objectOf(t, text))
			if c.says == "" {
				assert.Empty(t, refused)
				return
			}
			assert.Contains(t, strings.Join(refused, "; "), c.says)
		})
	}
}

// A node plugin can change only the status of volumes on its own node.
func TestNodePluginChangesOnlyItsOwnWitnesses(t *testing.T) {
	p := loadFrom(t, "../kubernetes/components/replication/policy.yaml")
	status := `{"operation": "UPDATE", "subResource": "status", ` + plugin[1:]
	published := strings.Replace(witness, `node-1", "generation": 2`, `node-2", "generation": 3`, 1)
	for name, c := range map[string]struct {
		former, changed, request string
		says                     string
	}{
		"its own volume":             {witness, witness, status, ""},
		"another node's volume":      {published, published, status, "whose writer is its node"},
		"takes a volume":             {published, witness, status, "whose writer is its node"},
		"gives a volume away":        {witness, published, status, "whose writer is its node"},
		"a token without a node":     {witness, witness, strings.Replace(status, "authentication.kubernetes.io/node-name", "x", 1), "whose writer is its node"},
		"the spec":                   {witness, witness, strings.Replace(status, `"subResource": "status"`, `"subResource": ""`, 1), "only change the status"},
		"creates one":                {"null", witness, strings.Replace(status, "UPDATE", "CREATE", 1), "only change the status"},
		"a new object, as an update": {"null", witness, status, "whose writer is its node"},
	} {
		t.Run(name, func(t *testing.T) {
			matched, refused := decide(t, p, c.former, c.changed, c.request)
			require.True(t, matched)
			if c.says == "" {
				assert.Empty(t, refused)
				return
			}
			assert.Contains(t, strings.Join(refused, "; "), c.says)
		})
	}
	matched, _ := decide(t, p, witness, witness, strings.Replace(status, "spdkcsi-node-sa", "spdkcsi-controller-sa", 1))
	assert.False(t, matched)
}
