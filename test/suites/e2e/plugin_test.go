//go:build kubernetes

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKubectlPluginShowsVolumesAndCapacity(t *testing.T) {
	n := disturbingNamespace(t, "kubectl spdkgate shows the state of a volume in use in Kubernetes and on the storage server, and the server's capacity")
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

	node := n.nodeOf("user").Name
	n.eventually("the node plugin reports the volume", func(context.Context) error {
		state, err := env.nodeState(t, node)
		if err == nil && len(state.Status.Staged.Volumes) == 0 {
			err = errors.New("none is staged")
		}
		return err
	})
	state, err := env.nodeState(t, node)
	require.NoError(t, err)
	assert.True(t, state.Ready && state.PluginReady && state.Registered)
	assert.Positive(t, state.Attached)
	assert.Empty(t, state.Fenced)
	assert.NotEmpty(t, state.Status.Version)
	for _, staged := range state.Status.Staged.Volumes {
		if staged.ID == v.ID {
			assert.Equal(t, "ok", staged.State)
			assert.Positive(t, staged.ExpectedPaths)
			assert.Equal(t, staged.ExpectedPaths, staged.LivePaths)
		}
	}
	table := env.plugin(t, "nodes", "--output=wide")
	for _, other := range env.cluster.Nodes {
		assert.Regexp(t, "(?m)^"+other.Name+` +Ready +\d.* +no +\d+ `, table, "volumes of earlier tests may have lost paths")
	}
}

// nodeState contains the results of `kubectl spdkgate nodes` for a node.
type nodeState struct {
	Name                                         string
	Ready, PluginReady, Registered, OutOfService bool
	Attached                                     int
	Fenced                                       []struct{ Target, Since string }
	Status                                       *struct {
		Version string
		Staged  struct {
			Volumes []struct {
				ID, State                string
				LivePaths, ExpectedPaths int
			}
		}
	}
}

// nodeState runs `kubectl spdkgate nodes` for one node. It fails if a value is unknown.
func (e *environment) nodeState(t *testing.T, node string) (nodeState, error) {
	t.Helper()
	out, notes, failed := e.runPlugin(t, "nodes", node, "--output=json")
	var nodes struct{ Items []nodeState }
	require.NoError(t, json.Unmarshal([]byte(out), &nodes), "%s %s", out, notes)
	require.Len(t, nodes.Items, 1)
	if failed != nil {
		failed = errors.New(notes)
	}
	return nodes.Items[0], failed
}

// plugin runs `kubectl spdkgate`, which must succeed.
func (e *environment) plugin(t *testing.T, args ...string) string {
	t.Helper()
	out, notes, err := e.runPlugin(t, args...)
	require.NoError(t, err, notes)
	return out
}

func (e *environment) runPlugin(t *testing.T, args ...string) (out, notes string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.driver.plugin, args...)
	// kubectl stores its cache in HOME
	cmd.Env = []string{"HOME=" + filepath.Join(e.driver.dir, "kubectl"), "PATH=" + e.driver.programs, "KUBECONFIG=" + e.cluster.Kubeconfig()}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}
