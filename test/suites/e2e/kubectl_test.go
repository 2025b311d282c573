//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
)

const (
	waitTimeout  = 4 * time.Minute // long enough for a busy machine
	pollInterval = 500 * time.Millisecond
)

// A namespace is a namespace in the cluster, for one test.
type namespace struct {
	t       *testing.T
	name    string
	kubectl cluster.Kubectl
	row     *result
}

// parallelNamespace creates a namespace for a test that runs concurrently with other tests. The
// test must pass, although possibly more slowly, while a test with a disturbingNamespace restarts
// the driver's pods or the proxy.
func parallelNamespace(t *testing.T, proof string) *namespace {
	t.Parallel()
	parallelTests <- struct{}{}
	t.Cleanup(func() { <-parallelTests })
	return newNamespace(t, proof)
}

// disturbingNamespace creates a namespace for a test that restarts the driver's pods or the proxy,
// or that would fail while another test does so. Tests with a disturbingNamespace run one after
// another, concurrently with tests that use parallelNamespace, and must not disturb pods that use
// volumes.
func disturbingNamespace(t *testing.T, proof string) *namespace {
	t.Parallel()
	disturbance.Lock()
	t.Cleanup(disturbance.Unlock)
	return newNamespace(t, proof)
}

// newNamespace creates a namespace for a test that runs alone, before all other tests, because it
// disturbs pods that use volumes, or changes how new volumes are created. It also adds a row to the
// table of results. When the test ends, the namespace and its volumes are deleted while other tests
// run.
func newNamespace(t *testing.T, proof string) *namespace {
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-"))
	n := &namespace{t: t, name: name, kubectl: env.cluster.Kubectl().In(name), row: &result{name: t.Name(), proof: proof, outcome: "passed"}}
	start := time.Now()
	n.run("create", "namespace", name)
	t.Cleanup(func() {
		if t.Failed() {
			n.row.outcome = "FAILED"
			n.report()
		}
		n.row.seconds = time.Since(start).Seconds()
		progress("%s %s: %s", n.row.outcome, t.Name(), proof)
		results.add(n.row)
		n.run("delete", "namespace", name, "--wait=false")
		deletions.Go(func() error {
			err := n.deleted(context.Background())
			if err != nil {
				err = fmt.Errorf("namespace %s: %w", name, err)
				progress("%v\n%s", err, volumeReport(context.Background(), name))
				results.note(summary(context.Background(), name))
			}
			return err
		})
	})
	return n
}

// deleted waits until a namespace that is being deleted, and its volumes, no longer exist.
func (n *namespace) deleted(ctx context.Context) error {
	if _, err := env.cluster.Kubectl().Run(ctx, "", "wait", "namespace/"+n.name, "--for=delete", rolloutTimeout); err != nil {
		return err
	}
	return eventually(ctx, func(ctx context.Context) error { return noVolumeOf(ctx, n.name) })
}

// objects returns the target's volumes for claims. Claims are given by UID or by the name of their
// PersistentVolume.
func (n *namespace) objects(claims ...string) []string {
	n.t.Helper()
	all, err := env.driver.server.Objects(n.t.Context())
	require.NoError(n.t, err)
	return slices.DeleteFunc(all, func(object string) bool {
		return !slices.ContainsFunc(claims, func(uid string) bool { return strings.Contains(object, uid) })
	})
}

// deletions runs the deletions of namespaces whose tests have ended.
var deletions errgroup.Group

var (
	parallelTests = make(chan struct{}, 6) // these tests spend most of their time waiting
	disturbance   sync.Mutex
)

// figure adds a measured value to the test's row.
func (n *namespace) figure(format string, args ...any) {
	n.row.figures = strings.TrimPrefix(n.row.figures+"; "+fmt.Sprintf(format, args...), "; ")
}

// run runs kubectl, which must succeed.
func (n *namespace) run(args ...string) string {
	n.t.Helper()
	return n.input("", args...)
}

func (n *namespace) input(text string, args ...string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitTimeout)
	defer cancel()
	out, err := n.kubectl.Run(ctx, text, args...)
	if err != nil && n.row != nil {
		n.figure("%v", err)
	}
	require.NoError(n.t, err)
	return strings.TrimSpace(out)
}

func (n *namespace) apply(manifest string) {
	n.t.Helper()
	n.input(manifest, "apply", "--filename=-")
}

// example applies an example from the manual.
func (n *namespace) example(name string) {
	n.t.Helper()
	n.apply(n.readExample(name))
}

func (n *namespace) readExample(name string) string {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy/kubernetes/examples", name))
	require.NoError(n.t, err)
	return string(text)
}

// await waits for a field's value, or for another condition of `kubectl wait`.
func (n *namespace) await(object, condition string) {
	n.t.Helper()
	n.run("wait", object, "--for="+condition, "--timeout="+waitTimeout.String())
}

func (n *namespace) bound(claim string) {
	n.t.Helper()
	n.await("pvc/"+claim, "jsonpath={.status.phase}=Bound")
}

func (n *namespace) ready(pod string) {
	n.t.Helper()
	n.await("pod/"+pod, "condition=Ready")
}

// exec runs a shell script in a pod and returns its output.
func (n *namespace) exec(pod, script string) string {
	n.t.Helper()
	return n.run("exec", pod, "--", "sh", "-c", "set -e; "+script)
}

// eventually repeats an attempt until it succeeds.
func (n *namespace) eventually(what string, attempt func(ctx context.Context) error) {
	n.t.Helper()
	require.NoError(n.t, eventually(context.Background(), attempt), what)
}

// eventually repeats an attempt until it succeeds. If no attempt succeeds in time, it returns the
// error of the last attempt that was completed.
func eventually(ctx context.Context, attempt func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	var last error
	for {
		start := time.Now()
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		// each call of kubectl takes CPU time away from the cluster
		case <-time.After(max(pollInterval, 2*time.Since(start))):
		}
	}
}
