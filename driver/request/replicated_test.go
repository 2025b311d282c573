package request

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplicatedContextIsParsed(t *testing.T) {
	r := Replicated{UID: "uid", Generation: 3, SizeBytes: 4096, Replicas: []Replica{{Number: 0, Server: "a", UUID: "x", Export: map[string]string{"nqn": "n"}}, {Number: 1, Server: "b", UUID: "y"}}}
	got, err := ParseReplicated(r.Format())
	require.NoError(t, err)
	assert.Equal(t, r, got)
	one, twice, same := r, r, r
	one.Replicas = r.Replicas[:1]
	twice.Replicas = []Replica{r.Replicas[0], r.Replicas[0]}
	same.SizeBytes = 0
	for _, text := range []string{"", "{}", "x", `{"other": 1}`, one.Format(), twice.Format(), same.Format()} {
		_, err := ParseReplicated(text)
		require.ErrorIs(t, err, ErrInvalid, text)
	}
	assert.False(t, IsTargetName(ReplicatedTarget), "ids of replicated volumes have it in place of a target")
}
