package request

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVolumeIDsAreParsed(t *testing.T) {
	const id = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	for text, want := range map[string]VolumeID{"node001:" + id: {"node001", id}, "a.b-c_d:" + id: {"a.b-c_d", id}, id: {"", id}} {
		got, err := ParseVolumeID(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, text, got.String())
	}
}

func FuzzVolumeID(f *testing.F) {
	f.Add("node001:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d")
	f.Add("::")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseVolumeID(s); err == nil && id.String() != s {
			t.Errorf("%q is read as %q: one volume would have two ids", s, id)
		}
	})
}

func TestNodeIDsAreChecked(t *testing.T) {
	for _, id := range []string{"node-1", "n", "a.b_c-d", strings.Repeat("n", 192)} {
		require.NoError(t, CheckNodeID(id), id)
		assert.True(t, len(id) > 63 || IsTargetName(id), id)
	}
	for _, id := range []string{"", "-n", "n-", "a/b", "a:b", strings.Repeat("n", 193)} {
		require.ErrorIs(t, CheckNodeID(id), ErrNoSuchID, id)
	}
	assert.False(t, IsTargetName("a:b"))
}
