package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// movable is the script of a fake kubectl for a cluster with a claim that can be moved. It stores
// the request that creates the record of the move, and then fails.
const movable = `case "$*" in
"config view"*) printf shop ;;
*"/persistentvolumeclaims?"*) echo '{"items": [{"metadata": {"name": "data", "uid": "u1"}, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}]}' ;;
*"/persistentvolumes?"*) echo '{"items": [{"metadata": {"name": "pv-1", "uid": "u2"}, "spec": {"claimRef": {"uid": "u1"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:11111111-1111-4111-8111-111111111111"}}}]}' ;;
"create --raw"*) cat >"$CREATED"; echo "Error from server (Forbidden): no" >&2; exit 1 ;;
*--raw*) echo '{"items": []}' ;;
esac
`

func TestMoveCallsKubectl(t *testing.T) {
	calls := kubectlOf(t, movable)
	created := filepath.Join(t.TempDir(), "created")
	t.Setenv("CREATED", created)
	_, _, err := run(t, "move", "data", "--context=test", "--parameter=target=t1,lvstore=lvs0")
	require.EqualError(t, err, "kubectl create --raw /api/v1/namespaces/spdkcsi/configmaps: Error from server (Forbidden): no")
	all := calls()
	assert.Equal(t, "config view --minify --output=jsonpath={..namespace} --context=test", all[0])
	assert.Equal(t, "get --raw /api/v1/namespaces/shop/persistentvolumeclaims?fieldSelector=metadata.name%3Ddata&limit=2000 --context=test", all[1])
	assert.Equal(t, "create --raw /api/v1/namespaces/spdkcsi/configmaps --filename=- --context=test", all[len(all)-1])
	text, err := os.ReadFile(created)
	require.NoError(t, err)
	assert.Contains(t, string(text), `\"target\": \"t1\"`)
	assert.Contains(t, string(text), `\"lvstore\": \"lvs0\"`)

	for _, flag := range []string{"--delete-original", "--keep-original"} {
		_, _, err = run(t, "move", "data", "-n", "lab", flag)
		require.ErrorContains(t, err, "no move of the claim is recorded")
		assert.Contains(t, calls()[0], "/namespaces/lab/")
		for _, other := range []string{"--prepare", "--parameter=a=b"} {
			_, _, err = run(t, "move", "data", flag, other)
			require.ErrorContains(t, err, "none of the others can be")
		}
	}
	for _, args := range [][]string{{"move"}, {"move", "a", "b"}, {"move", "a", "--delete-original", "--keep-original"}} {
		_, _, err = run(t, args...)
		require.Error(t, err, args)
	}
	kubectlOf(t, "exit 1\n")
	_, _, err = run(t, "move", "data")
	require.ErrorContains(t, err, "--namespace is missing: kubectl config view")
}

func TestEvacuateShowsThePlan(t *testing.T) {
	const up = `case "$*" in *"spdk-csi inventory --target=t0"*) echo '{"targets": [{"name": "t0"}]}'; exit;; esac
`
	calls := kubectlOf(t, up+cluster)
	out, notes, err := run(t, "evacuate", "t0", "--parameter=target=t1")
	require.NoError(t, err)
	assert.Regexp(t, `shop +data +claim +1Gi +- +moved now\n`, out)
	assert.Contains(t, notes, "Nothing was changed")
	for _, call := range calls() {
		assert.Regexp(t, `^(get --raw|exec) `, call)
	}
	out, _, err = run(t, "evacuate", "t0", "--parameter=target=t1", "--run")
	require.ErrorContains(t, err, "the storage server is still in use by 1 claims")
	assert.Contains(t, out, "0 moved, 0 prepared, 1 failed")
	for _, args := range [][]string{{"evacuate"}, {"evacuate", "t0"}, {"evacuate", "t0", "--parameter=target=t0"}, {"evacuate", "t0", "--parameter=target=t1", "--run", "-o", "json"}} {
		_, _, err = run(t, args...)
		require.Error(t, err, args)
	}
}
