//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaders returns the holders of the sidecars' leases, by lease.
func leaders(ctx context.Context) (map[string]string, error) {
	out, err := env.driver.kubectl.Run(ctx, "", "get", "leases", `--output=jsonpath={range .items[*]}{.metadata.name}={.spec.holderIdentity}{"\n"}{end}`)
	holders := map[string]string{}
	for line := range strings.Lines(out) {
		lease, holder, _ := strings.Cut(strings.TrimSpace(line), "=")
		holders[lease] = holder
	}
	return holders, err
}

func TestLeaderDeleted(t *testing.T) {
	const claims = 8
	n := newNamespace(t, "the controller's leading pod is deleted while volumes are created: another one takes over")
	ctx := t.Context()
	before, err := leaders(ctx)
	require.NoError(t, err)
	require.Len(t, before, 4, "a lease for each sidecar")
	pods := strings.Fields(env.run(t, "get", "pods", "--selector=app="+driverDeployment, "--output=jsonpath={.items[*].metadata.name}"))
	require.Len(t, pods, 2)
	provisioner := before[lease(before, "provisioner")]
	at := slices.IndexFunc(pods, func(p string) bool { return strings.HasPrefix(provisioner, p) })
	require.GreaterOrEqual(t, at, 0, "%s leads, and is none of %v", provisioner, pods)
	for i := range claims {
		n.apply(claim(fmt.Sprint("data-", i), storageClass, "64Mi", ""))
	}
	start := time.Now()
	env.run(t, "delete", "pod", pods[at], "--wait=false")
	n.eventually("other leaders", func(ctx context.Context) error {
		now, err := leaders(ctx)
		for lease, holder := range now {
			if strings.HasPrefix(holder, pods[at]) || holder == "" {
				err = errors.Join(err, fmt.Errorf("%s is held by %q", lease, holder))
			}
		}
		return err
	})
	n.figure("all leases held by the other pod after %.1f s", time.Since(start).Seconds())
	for i := range claims {
		n.bound(fmt.Sprint("data-", i))
	}
	n.figure("%d claims bound after %.1f s", claims, time.Since(start).Seconds())
	env.run(t, "rollout", "status", "deployment/"+driverDeployment, rolloutTimeout)
}

// lease returns the name of a sidecar's lease. The provisioner's has the driver's name alone.
func lease(all map[string]string, sidecar string) string {
	for name := range all {
		if strings.Contains(name, sidecar) {
			return name
		}
	}
	return strings.ReplaceAll(driverName, ".", "-")
}

func TestNodePluginDeleted(t *testing.T) {
	n := newNamespace(t, "the node plugin's pod is deleted: a pod keeps its volume, and its end and the next pod work")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	written := n.write("first", "/volume/file")
	start := time.Now()
	env.run(t, "delete", "pod", "--selector=app="+driverDaemonSet)
	assert.Equal(t, written, n.sum("first", "/volume/file"), "while the plugin starts")
	env.run(t, "rollout", "status", "daemonset/"+driverDaemonSet, rolloutTimeout)
	n.figure("plugin back after %.1f s", time.Since(start).Seconds())
	written = n.write("first", "/volume/file")
	n.run("delete", "pod", "first")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestKubeletKilled(t *testing.T) {
	n := newNamespace(t, "kubelet is killed and started: a pod keeps its volume, and its end and the next pod work")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	written := n.write("first", "/volume/file")
	node := n.nodeOf("first")
	require.NoError(t, node.Kubelet.Kill())
	require.NoError(t, node.StartKubelet(t.Context()))
	n.eventually("the pod answers", func(ctx context.Context) error {
		_, err := n.kubectl.Run(ctx, "", "exec", "first", "--", "true")
		return err
	})
	assert.Equal(t, written, n.sum("first", "/volume/file"))
	n.run("delete", "pod", "first")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestProxyAway(t *testing.T) {
	n := newNamespace(t, "the proxy is away: a pod writes on, a claim waits; when the proxy is back, the claim is bound and the pod can go")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("writer", "data"))
	n.ready("writer")
	require.NoError(t, env.driver.server.StopProxy())
	back := false
	t.Cleanup(func() {
		if !back {
			require.NoError(t, env.driver.server.StartProxy(context.Background()))
		}
	})
	written := n.write("writer", "/volume/file")
	n.apply(claim("later", storageClass, "64Mi", ""))
	n.eventually("an event about the claim", func(ctx context.Context) error {
		message, err := n.kubectl.Run(ctx, "", "get", "events", "--field-selector=involvedObject.name=later,reason=ProvisioningFailed", "--output=jsonpath={.items[*].message}")
		if err == nil && message == "" {
			err = fmt.Errorf("no event")
		}
		return err
	})
	require.NoError(t, env.driver.server.StartProxy(t.Context()))
	back = true
	start := time.Now()
	n.bound("later")
	n.figure("bound %.1f s after the proxy was back", time.Since(start).Seconds())
	assert.Equal(t, written, n.sum("writer", "/volume/file"))
}

// run runs kubectl in the driver's namespace, which must succeed.
func (e *environment) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.driver.kubectl.Run(context.Background(), "", args...)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// setSecret replaces the driver's credentials.
func (e *environment) setSecret(t *testing.T, text string) {
	t.Helper()
	_, err := e.driver.kubectl.Run(context.Background(), object("Secret", driverSecret, "stringData", "secret.json", text), "apply", "--filename=-")
	require.NoError(t, err)
}
