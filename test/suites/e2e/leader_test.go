//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// A leader is the controller's pod whose provisioner holds the lease.
type leader struct{ pod, uid string }

func provisioningLeader(ctx context.Context) (leader, error) {
	holders, err := leaders(ctx)
	if err != nil {
		return leader{}, err
	}
	if len(holders) != 4 {
		return leader{}, fmt.Errorf("a lease for each sidecar is expected, not %v", holders)
	}
	out, err := env.driver.kubectl.Run(ctx, "", "get", "pods", "--selector=app="+driverDeployment,
		"--output=go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}/{{.metadata.uid}} {{end}}{{end}}")
	if err != nil {
		return leader{}, err
	}
	pods := strings.Fields(out)
	if len(pods) != 2 {
		return leader{}, fmt.Errorf("the controller has the pods %v instead of two", pods)
	}
	holder := holders[lease(holders, "provisioner")]
	for _, p := range pods {
		if name, uid, _ := strings.Cut(p, "/"); strings.HasPrefix(holder, name) {
			return leader{name, uid}, nil
		}
	}
	return leader{}, fmt.Errorf("%q leads, but is not one of %v", holder, pods)
}

// settledLeader waits until one of the controller's two pods is the leader. For several seconds
// after a rollout, the replaced pods may still be running and holding the leases.
func (n *namespace) settledLeader() (l leader) {
	n.t.Helper()
	n.eventually("one of the controller's pods leads", func(ctx context.Context) (err error) {
		l, err = provisioningLeader(ctx)
		return err
	})
	return l
}

// signal sends a signal to those processes of the pod that run a program; an empty name means all
// processes.
func (l leader) signal(t *testing.T, program string, s syscall.Signal) {
	t.Helper()
	found, err := l.trySignal(program, s)
	require.NoError(t, err)
	require.NotZero(t, found, "no process %s of pod %s", program, l.pod)
}

// trySignal is like signal for a pod that may have ended. The result is the number of processes
// that were found.
func (l leader) trySignal(program string, s syscall.Signal) (found int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cgroup, err1 := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		command, err2 := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err1 != nil || err2 != nil { // the process has ended
			continue
		}
		name, _, _ := strings.Cut(string(command), "\x00")
		if strings.Contains(string(cgroup), "pod"+l.uid) && (program == "" || filepath.Base(name) == program) {
			found++
			if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
				return found, err
			}
		}
	}
	return found, nil
}

const manyClaims = 8

func (n *namespace) createClaims() {
	var all strings.Builder
	for i := range manyClaims {
		all.WriteString(claim(fmt.Sprint("data-", i), storageClass, "64Mi", "") + "---\n")
	}
	n.apply(all.String())
}

// oneVolumeEach waits until the claims are bound, and requires that the target has exactly one
// volume for each claim.
func (n *namespace) oneVolumeEach() {
	n.t.Helper()
	n.run("wait", "pvc", "--all", "--for=jsonpath={.status.phase}=Bound", "--timeout="+waitTimeout.String())
	claims := strings.Fields(n.run("get", "pvc", "--output=jsonpath={.items[*].metadata.uid}"))
	require.Len(n.t, claims, manyClaims)
	for _, c := range claims {
		assert.Len(n.t, n.objects(c), 1, "volumes of claim %s", c)
	}
}

func TestDeletedLeaderIsReplaced(t *testing.T) {
	n := disturbingNamespace(t, "the controller's leading pod is deleted while volumes are created: the other one takes over")
	old := n.settledLeader()
	n.createClaims()
	start := time.Now()
	env.run(t, "delete", "pod", old.pod, "--wait=false")
	n.eventually("other leaders", func(ctx context.Context) error {
		now, err := leaders(ctx)
		for lease, holder := range now {
			if strings.HasPrefix(holder, old.pod) || holder == "" {
				err = errors.Join(err, fmt.Errorf("%s is held by %q", lease, holder))
			}
		}
		return err
	})
	n.figure("all leases held by the other pod after %.1f s", time.Since(start).Seconds())
	n.oneVolumeEach()
	n.figure("%d claims bound after %.1f s", manyClaims, time.Since(start).Seconds())
	env.run(t, "rollout", "status", "deployment/"+driverDeployment, rolloutTimeout)
}

func TestKilledLeaderIsReplaced(t *testing.T) {
	n := disturbingNamespace(t, "all processes of the controller's leading pod are killed while volumes are created: each claim gets one volume")
	old := n.settledLeader()
	n.createClaims()
	start := time.Now()
	old.signal(t, "", syscall.SIGKILL)
	n.oneVolumeEach()
	n.figure("%d claims bound after %.1f s", manyClaims, time.Since(start).Seconds())
	env.run(t, "rollout", "status", "deployment/"+driverDeployment, rolloutTimeout)
}

func TestStoppedLeaderIsReplaced(t *testing.T) {
	n := disturbingNamespace(t, "the leading provisioner is stopped (SIGSTOP) while volumes are created: the other one takes over, and no claim gets two volumes when the first resumes")
	old := n.settledLeader()
	n.createClaims()
	start := time.Now()
	old.signal(t, "csi-provisioner", syscall.SIGSTOP)
	t.Cleanup(func() { env.run(t, "rollout", "status", "deployment/"+driverDeployment, rolloutTimeout) })
	n.oneVolumeEach()
	n.figure("%d claims bound after %.1f s", manyClaims, time.Since(start).Seconds())
	n.eventually("another leader", func(ctx context.Context) error {
		now, err := provisioningLeader(ctx)
		if err == nil && now == old {
			err = errors.New("the stopped provisioner still leads")
		}
		return err
	})
	old.signal(t, "csi-provisioner", syscall.SIGCONT)
	n.eventually("the provisioner starts again, because it has lost the lease", func(ctx context.Context) error {
		out, err := env.driver.kubectl.Run(ctx, "", "get", "pod", old.pod, "--output=jsonpath={.status.containerStatuses[?(@.name=='spdkcsi-provisioner')].restartCount}")
		if err == nil && out == "0" {
			err = errors.New("it runs on")
		}
		return err
	})
	n.oneVolumeEach()
}

// lease returns the name of a sidecar's lease. The provisioner's lease has the driver's name.
func lease(all map[string]string, sidecar string) string {
	for name := range all {
		if strings.Contains(name, sidecar) {
			return name
		}
	}
	return strings.ReplaceAll(driverName, ".", "-")
}
