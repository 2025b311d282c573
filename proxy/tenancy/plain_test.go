package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestPlainNamesHaveNoUnsafeCharacters(t *testing.T) {
	for _, good := range []string{"vol-1", "größe", "卷"} {
		assert.True(t, plain(good), good)
	}
	for _, bad := range []string{"", "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "a\u009b2Jb", "a\u202eb", "a\u2066b", "a\u200fb", "a\u2028b"} {
		assert.False(t, plain(bad), "%q", bad)
	}
}

func TestUnsafeTenantNamesAreRejected(t *testing.T) {
	_, err := New([]Tenant{{Name: "a\u202eb"}}, nil, rpcschema.Default(), nil)
	require.ErrorContains(t, err, `tenant "a\u202eb": the name has control characters`)
}
