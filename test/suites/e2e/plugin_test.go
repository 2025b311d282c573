//go:build kubernetes

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKubectlPlugin(t *testing.T) {
	n := disturbingNamespace(t, "kubectl spdkgate shows a volume in use as Kubernetes and the storage server know it, and the server's capacity")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("user", "data"))
	n.ready("user")

	var volumes struct {
		Items []struct {
			ID, Namespace, Claim, Target, Store string
			Live                                struct{ ExportedTo []string }
		}
	}
	text := env.plugin(t, "volumes", "--live", "--namespace", n.name, "--output=json")
	require.NoError(t, json.Unmarshal([]byte(text), &volumes), text)
	require.Len(t, volumes.Items, 1)
	v := volumes.Items[0]
	assert.Equal(t, []string{n.handle("data"), n.name, "data", storageServer, "lvs0"}, []string{v.ID, v.Namespace, v.Claim, v.Target, v.Store})
	assert.Equal(t, []string{n.nodeOf("user").Name}, v.Live.ExportedTo, text)
	assert.Contains(t, env.plugin(t, "capacity", "--live"), "lvs0")
}

// plugin runs `kubectl spdkgate`.
func (e *environment) plugin(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.driver.plugin, args...)
	cmd.Env = []string{"HOME=" + filepath.Join(e.driver.dir, "kubectl"), "PATH=" + e.driver.programs, "KUBECONFIG=" + e.cluster.Kubeconfig()} // kubectl keeps a cache in HOME
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	return stdout.String()
}
