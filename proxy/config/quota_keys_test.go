package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTenantsHaveADefaultKeyQuota(t *testing.T) {
	q, err := Quota{}.quota()
	require.NoError(t, err)
	assert.Equal(t, defaultKeys, q.Keys)
	q, err = Quota{Keys: new(7)}.quota()
	require.NoError(t, err)
	assert.Equal(t, 7, q.Keys)
	for _, n := range []int{-1, 0, mostKeys + 1} {
		_, err = Quota{Keys: &n}.quota()
		assert.EqualError(t, err, "quota.keys must be 1 to 4096; remove the key to use the default (256)")
	}
}
