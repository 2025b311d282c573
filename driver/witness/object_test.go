package witness

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

const whole = `{"apiVersion": "spdkgate.io/v1alpha1", "kind": "ReplicatedVolume",
	"metadata": {"name": "pvc-1", "uid": "u", "resourceVersion": "7", "finalizers": ["spdkgate.io/replicas"], "managedFields": [{}]},
	"spec": {"replicas": [{"number": 0, "server": "storage-1", "lvol": "lvs/pvc-1"}, {"number": 1, "server": "storage-2", "lvol": "lvs/pvc-1"}], "writer": {"node": "node-1", "generation": 3}},
	"status": {"epoch": 5, "inSync": [0], "clean": false, "logged": [1], "discarded": [1], "held": {"generation": 3, "replicas": [0]}}}`

func TestWitnessObjectIsDecoded(t *testing.T) {
	r, err := decode([]byte(whole))
	require.NoError(t, err)
	assert.Equal(t, replica.Witness{
		Writer: replica.Writer{Node: "node-1", Generation: 3}, Created: true, Replicas: setAB, InSync: setA, Held: setA, Logged: setB, Discarded: setB, Epoch: 5,
	}, r.Witness)
	text, err := r.encode()
	require.NoError(t, err)
	assert.JSONEq(t, whole, string(text))
}

// An object with a missing, unknown, repeated or contradictory field is rejected.
func TestInvalidWitnessObjectsAreRejected(t *testing.T) {
	for _, change := range []string{
		`"spdkgate.io/v1alpha1" -> "spdkgate.io/v1"`,
		`"ReplicatedVolume" -> "Other"`,
		`"kind": -> "extra": 1, "kind":`,
		`"uid": "u", -> `,
		`"name": "pvc-1", -> `,
		`"resourceVersion": "7", -> `,
		`spdkgate.io/replicas -> other`,
		`"number": 0, -> `,
		`"number": 0 -> "number": 1`,
		`"number": 0 -> "number": 3`,
		`"number": 0 -> "number": -1`,
		`"number": 0 -> "Number": 0`,
		`"server": "storage-1", -> `,
		`"server": "storage-1" -> "server": ""`,
		`"lvs/pvc-1" -> "pvc-1"`,
		`"lvs/pvc-1" -> "lvs/"`,
		`"server": "storage-1" -> "zone": "x", "server": "storage-1"`,
		`, "writer": {"node": "node-1", "generation": 3} -> `,
		`"node": "node-1", -> `,
		`, "generation": 3} -> }`,
		`"generation": 3}}, -> "generation": 0}},`,
		`"generation": 3}}, -> "generation": 2}},`,
		`"epoch": 5, -> `,
		`"epoch": 5 -> "epoch": 0`,
		`"epoch": 5 -> "epoch": -1`,
		`"epoch": 5 -> "epoch": 5.5`,
		`"epoch": 5 -> "epoch": "5"`,
		`"epoch": 5 -> "epoch": 5, "epoch": 6`,
		`"epoch": 5 -> "epoch": 5, "later": true`,
		`"inSync": [0], -> `,
		`"inSync": [0] -> "inSync": []`,
		`"inSync": [0] -> "inSync": null`,
		`"inSync": [0] -> "inSync": [2]`,
		`"inSync": [0] -> "inSync": [3]`,
		`"inSync": [0] -> "inSync": [0, 0]`,
		`"inSync": [0] -> "inSync": [-1]`,
		`"inSync": [0] -> "inSync": [0, 1]`,
		`"clean": false, -> `,
		`"clean": false -> "clean": null`,
		`"logged": [1], -> `,
		`"logged": [1] -> "logged": [2]`,
		`"discarded": [1], -> `,
		`"discarded": [1] -> "discarded": null`,
		`"discarded": [1] -> "discarded": [0]`,
		`"discarded": [1] -> "discarded": [2]`,
		`"discarded": [1] -> "discarded": [3]`,
		`, "held": {"generation": 3, "replicas": [0]} -> `,
		`{"generation": 3, "replicas": [0]} -> {"generation": 4, "replicas": [0]}`,
		`{"generation": 3, "replicas": [0]} -> {"generation": 3, "replicas": [2]}`,
		`{"generation": 3, "replicas": [0]} -> {"generation": 3}`,
		`{"generation": 3, "replicas": [0]} -> {"replicas": [0]}`,
	} {
		from, to, _ := strings.Cut(change, " -> ")
		require.Equal(t, 1, min(1, strings.Count(whole, from)), change)
		_, err := decode([]byte(strings.Replace(whole, from, to, 1)))
		require.ErrorIs(t, err, ErrUnreadable, change)
	}
	for _, text := range []string{``, `{}`, `null`, whole + `{}`} {
		_, err := decode([]byte(text))
		require.ErrorIs(t, err, ErrUnreadable, text)
	}
}

// An object without a status belongs to a volume that has no data yet.
func TestWitnessWithoutStatusIsDecoded(t *testing.T) {
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(whole), &o))
	delete(o, "status")
	text, err := json.Marshal(o)
	require.NoError(t, err)
	r, err := decode(text)
	require.NoError(t, err)
	assert.Equal(t, replica.Witness{Writer: replica.Writer{Node: "node-1", Generation: 3}, Replicas: setAB}, r.Witness)
}

// The replicas in the mirror of an earlier publication are ignored.
func TestReplicasHeldByAnEarlierPublicationAreIgnored(t *testing.T) {
	r, err := decode([]byte(strings.Replace(whole, `{"generation": 3, "replicas": [0]}`, `{"generation": 2, "replicas": [2]}`, 1)))
	require.NoError(t, err)
	assert.Zero(t, r.Witness.Held)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decode(text)
		if err != nil {
			return
		}
		again, err := r.encode()
		require.NoError(t, err)
		got, err := decode(again)
		require.NoError(t, err)
		require.True(t, got.same(r))
	})
}
