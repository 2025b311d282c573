package controller

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The problems of volumes are reported for every target that can be read, even if others fail.
func TestProblemsOfVolumesAreRead(t *testing.T) {
	const absent = "5e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	first, second := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	b := newTestController(t, first, second)
	b.withCredentials(t)
	on := func(name, target string) string {
		req := b.request(name, 4*mib)
		req.Parameters = map[string]string{"target": target}
		resp, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err)
		return resp.GetVolume().GetVolumeId()
	}
	v0, v1 := on("pvc-0", "t0"), on("pvc-1", "t1")
	bare := strings.TrimPrefix(v0, "t0:") // of a PersistentVolume that an administrator has created
	stores := map[string]string{
		v0: "lvs0", v1: "lvs0", bare: "", "t1:" + absent: "lvs0", "t9:" + absent: "", absent: "", "manual": "", request.ReplicatedTarget + ":" + absent: "",
	}
	r := Reloading{}
	r.current.Store(b.Controller)
	read := func() (map[string]string, error) {
		all, err := r.Problems(t.Context(), stores)
		reasons := map[string]string{}
		for handle, problem := range all {
			reasons[handle] = problem.Reason
		}
		return reasons, err
	}
	found, err := read()
	require.ErrorIs(t, err, request.ErrUnsupported, "there are no witnesses")
	assert.Equal(t, map[string]string{v0: "", v1: "", bare: "", "t1:" + absent: "VolumeMissing"}, found, "the others are unknown")
	delete(stores, request.ReplicatedTarget+":"+absent)

	require.NoError(t, first.rpc.BdevMallocDelete(t.Context(), spdkrpc.BdevMallocDeleteParams{Name: "disk-lvs0"}))
	found, err = read()
	require.NoError(t, err)
	assert.Equal(t, "LvstoreMissing", found[v0])
	assert.Empty(t, found[v1])

	second.replace(t, nil)
	found, err = read()
	require.ErrorContains(t, err, "t1")
	assert.Equal(t, map[string]string{v0: "LvstoreMissing"}, found)

	// A target without credentials does not hide the problems of the others.
	text, err := json.Marshal(map[string]any{"rpcTokens": []any{map[string]any{"name": "t0", "username": user, "password": password}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.credentialsFile, text, 0o600))
	found, err = read()
	require.ErrorIs(t, err, request.ErrCredentials)
	assert.Equal(t, "LvstoreMissing", found[v0])
	b.credentialsFile = ""
	_, err = read()
	require.ErrorContains(t, err, config.CredentialsEnv)
}
