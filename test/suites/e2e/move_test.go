//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKubectlPluginMovesAVolume(t *testing.T) {
	n := disturbingNamespace(t, "kubectl spdkgate move copies a volume while a pod writes to it, is killed while it copies and while it recreates the claim, and is repeated: the claim uses the copy with all data, and the original is deleted only on demand")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.run("label", "pvc", "data", "app=database")
	n.apply(pod("writer", "data"))
	n.ready("writer")
	old, original := n.volume("data"), n.handle("data")
	first := n.write("writer", "/volume/first")

	move := []string{"move", "data", "--namespace", n.name, "--parameter", "thin=false"}
	_, notes, err := env.runPlugin(t, move...)
	require.Error(t, err)
	assert.Contains(t, notes, "in use by pod writer")
	assert.Contains(t, env.plugin(t, append(move, "--prepare")...), "is prepared")
	second := n.write("writer", "/volume/second")
	n.run("delete", "pod", "writer")
	n.detached("data")

	start, kills := time.Now(), 0
	for delay := 500 * time.Millisecond; ; delay += delay / 2 {
		if n.killedPlugin(delay, move...) == nil {
			break
		}
		kills++
	}
	n.figure("moved in %.0f s with %d kills", time.Since(start).Seconds(), kills)
	assert.Contains(t, env.plugin(t, move...), "The original "+original+" is kept")
	moved := n.handle("data")
	assert.NotEqual(t, original, moved)
	assert.Equal(t, "database", n.run("get", "pvc", "data", "--output=jsonpath={.metadata.labels.app}"))
	assert.Equal(t, "Retain", n.run("get", "pv", old, "--output=jsonpath={.spec.persistentVolumeReclaimPolicy}"))
	assert.Equal(t, "Delete", n.run("get", "pv", n.volume("data"), "--output=jsonpath={.spec.persistentVolumeReclaimPolicy}"))

	n.apply(pod("reader", "data"))
	n.ready("reader")
	assert.Equal(t, first, n.sum("reader", "/volume/first"))
	assert.Equal(t, second, n.sum("reader", "/volume/second"))
	assert.Contains(t, env.plugin(t, "move", "data", "--namespace", n.name, "--delete-original"), "is deleted")
	left, err := env.driver.server.Objects(t.Context())
	require.NoError(t, err)
	for _, object := range left {
		assert.NotContains(t, object, old, "the original is deleted")
	}
	n.eventually("the original's PersistentVolume is deleted", func(ctx context.Context) error {
		found, err := n.kubectl.Run(ctx, "", "get", "pv", old, "--ignore-not-found", "--output=name")
		if err == nil && found != "" {
			err = errors.New("it exists")
		}
		return err
	})
	assert.Equal(t, second, n.sum("reader", "/volume/second"))

	// Another move is prepared and given up. Its copy is left to the administrator.
	move[len(move)-1] = "thin=true"
	before, err := env.driver.server.Objects(t.Context())
	require.NoError(t, err)
	env.plugin(t, append(move, "--prepare")...)
	assert.Contains(t, env.plugin(t, "move", "data", "--namespace", n.name, "--keep-original"), "Nodes can attach the original "+moved)
	assert.Equal(t, moved, n.handle("data"))
	left, err = env.driver.server.Objects(t.Context())
	require.NoError(t, err)
	for _, object := range slices.Backward(left) { // subsystems before lvols
		if !slices.Contains(before, object) {
			require.NoError(t, env.driver.server.Remove(t.Context(), object))
		}
	}
	n.run("delete", "pod", "reader")
	n.run("delete", "pvc", "data")
}

// killedPlugin runs the plugin, and kills it after a time. It returns nil if the command succeeded
// before.
func (n *namespace) killedPlugin(after time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(n.t.Context(), after)
	defer cancel()
	cmd := exec.CommandContext(ctx, env.driver.plugin, args...)
	cmd.Env = []string{"HOME=" + filepath.Join(env.driver.dir, "kubectl"), "PATH=" + env.driver.programs, "KUBECONFIG=" + env.cluster.Kubeconfig()}
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() == nil {
		n.t.Fatalf("the plugin failed: %s", out)
	}
	if err != nil {
		return fmt.Errorf("killed: %w", err)
	}
	return nil
}
