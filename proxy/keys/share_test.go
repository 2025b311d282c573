package keys

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTenantKeyQuotaIsEnforced(t *testing.T) {
	r, k := newRing(t), New(newFolder(t))
	red := Share{Most: 2, Has: func(name string) bool { return strings.HasPrefix(name, "red-") }}
	require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "blue-1", oneSecret))
	require.NoError(t, k.Add(t.Context(), r.ask, red, "red-1", oneSecret))
	require.NoError(t, k.Add(t.Context(), r.ask, red, "red-2", oneSecret))
	err := k.Add(t.Context(), r.ask, red, "red-3", oneSecret)
	assert.Equal(t, syscall.ENOSPC, errnoOf(err))
	assert.Equal(t, "this tenant has 2 keys, and its quota is 2: remove some (spdkgate_key_remove), or ask the administrator of this proxy for a larger quota (quota.keys)", err.Error())
	require.NoError(t, k.Add(t.Context(), r.ask, red, "red-2", oneSecret), "an existing key may be repeated")
	require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "blue-2", oneSecret))
	require.NoError(t, k.Remove(t.Context(), r.ask, "red-1"))
	require.NoError(t, k.Add(t.Context(), r.ask, red, "red-3", oneSecret))
}
