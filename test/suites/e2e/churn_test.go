//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

var churn = flag.Int("churn", 0, "run TestVolumesSurviveChurn with this number of volumes, one after the other, for each of six users")

// Claims are deleted only after they have been bound. If csi-provisioner is killed while it is
// provisioning a deleted claim, it leaves the volume behind.
func TestVolumesSurviveChurn(t *testing.T) {
	if *churn == 0 {
		t.Skip("takes minutes: give a number with -churn")
	}
	n := newNamespace(t, "volumes are created, used and deleted while the driver's pods are deleted and its processes are killed and stopped: each volume can be used, and none is left over")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var users, trouble errgroup.Group
	for user := range 6 {
		users.Go(func() error {
			for i := range *churn {
				if err := n.live(ctx, fmt.Sprintf("data-%d-%d", user, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	troubles := 0
	trouble.Go(func() error {
		for ctx.Err() == nil {
			if err := n.trouble(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			troubles++
			pause(ctx, 10*time.Second)
		}
		return nil
	})
	err := users.Wait()
	stop()
	require.NoError(t, trouble.Wait())
	require.NoError(t, err)
	n.figure("%d volumes, %d disturbances", 6**churn, troubles)
	require.NoError(t, env.driver.inService(context.Background()))
}

// live creates a volume and a pod that uses it. It deletes both when the pod is running, or
// earlier.
func (n *namespace) live(ctx context.Context, name string) error {
	if _, err := n.kubectl.Run(ctx, claim(name, storageClass, "64Mi", "")+"---\n"+pod(name, name), "apply", "--filename=-"); err != nil {
		return err
	}
	wait := []string{"wait", "pod/" + name, "--for=condition=Ready", "--timeout=" + waitTimeout.String()}
	early := rand.IntN(3) == 0
	if early {
		wait = []string{"wait", "pvc/" + name, "--for=jsonpath={.status.phase}=Bound", "--timeout=" + waitTimeout.String()}
	}
	if _, err := n.kubectl.Run(ctx, "", wait...); err != nil {
		return err
	}
	if early {
		pause(ctx, 5*time.Second)
	}
	_, err := n.kubectl.Run(ctx, "", "delete", "pod/"+name, "pvc/"+name, "--wait=false")
	return err
}

// trouble kills or pauses some of the driver's processes. It may find none, because they may still
// be ending or starting after the last disturbance.
func (n *namespace) trouble(ctx context.Context) error {
	selected := func(app string) error {
		_, err := env.driver.kubectl.Run(ctx, "", "delete", "pods", "--selector=app="+app, "--wait=false", "--grace-period=1")
		return err
	}
	l, err := provisioningLeader(ctx)
	switch kind := rand.IntN(4); {
	case kind == 0:
		return selected(driverDaemonSet)
	case kind == 1:
		return selected(driverDeployment)
	case err != nil: // no leader is elected yet
		return nil
	case kind == 2:
		_, err = l.trySignal("", syscall.SIGKILL)
	case kind == 3:
		_, err = l.trySignal("csi-provisioner", syscall.SIGSTOP)
		pause(ctx, 25*time.Second) // usually longer than a lease lasts
		_, errCont := l.trySignal("csi-provisioner", syscall.SIGCONT)
		err = errors.Join(err, errCont)
	}
	return err
}

// pause waits for a random time of at most the given duration.
func pause(ctx context.Context, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(most)):
	}
}
