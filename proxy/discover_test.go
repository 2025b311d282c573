package proxy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestDiscoverReturnsAllowedMethods(t *testing.T) {
	b := newBench(t, "v24.01")
	g := b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"rpc.discover"}`))
	require.Equal(t, 200, g.StatusCode, g.body)
	var reply struct{ Result json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(g.body), &reply))
	d, err := rpcschema.Load(reply.Result)
	require.NoError(t, err)
	_, ok := d.Method("bdev_get_bdevs")
	assert.True(t, ok, "a method that the user may call")
	_, ok = d.Method("bdev_malloc_create")
	assert.False(t, ok, "a method that the user may not call")
	_, ok = d.Method("keyring_get_keys")
	assert.False(t, ok, "a method that the target's release does not have")
	assert.Equal(t, "rpc.discover", b.lastCall()["method"])

	g = b.do("GET", "/openrpc.json", "admin", adminPassword, nil)
	require.Equal(t, 200, g.StatusCode)
	d, err = rpcschema.Load([]byte(g.body))
	require.NoError(t, err)
	m, ok := d.Method("bdev_lvol_create")
	require.True(t, ok)
	assert.NotNil(t, m.Param("size"), "v24.01 takes size")

	g = b.do("GET", "/openrpc.json", "", "", nil)
	assert.Equal(t, 401, g.StatusCode)
	assert.NotContains(t, g.body, "bdev_")
	b.target.Crash()
	require.Eventually(t, func() bool { return b.proxy.target.Connections() == 0 }, long, time.Millisecond)
	g = b.do("GET", "/openrpc.json", "admin", adminPassword, nil)
	assert.Equal(t, 502, g.StatusCode, "the document depends on the release, which is unknown")
}
